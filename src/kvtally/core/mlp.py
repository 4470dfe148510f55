"""What follows the mixer in a layer: a dense MLP, or experts behind a router."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from kvtally.core.errors import InputError, require_int
from kvtally.core.tally import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A dense MLP of `width` inner units; `gated` adds the gate of SwiGLU and its kin.

    >>> Mlp(width=48).projections(16)[Term.down_proj]  # 48 * 16
    768
    """

    width: int
    gated: bool = True

    def __post_init__(self) -> None:
        require_int("width", self.width, least=1)

    def projections(self, hidden_size: int) -> dict[Term, int]:
        """MACs a token, by term: hidden_size * width for each matrix."""
        return _matrices(hidden_size * self.width, gated=self.gated)

    @property
    def needed(self) -> tuple[int, int]:
        """How many of how many experts that transformers runs on a token are needed: one of one."""
        return 1, 1

    def surplus(self, hidden_size: int) -> int:
        """MACs a token that transformers makes and nobody needs: none."""
        return 0

    def shrunk(self) -> Mlp:
        return replace(self, width=min(self.width, 6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`num_experts` MLPs of `width`, `per_token` of them chosen by a router, and `shared` width always on.

    `shared_gate` gates of one unit are on the shared part (Qwen has one, Inkling one a shared expert) and
    count with the router. `router`: the widths between hidden state and scores where the router is an MLP
    itself. `latent`: experts read and write a vector of this width, made from the hidden state and back.
    `all_run`: transformers runs every expert on every token and throws away what was not chosen (Llama 4).

    >>> eight = Experts(num_experts=8, per_token=2, width=48, all_run=True)
    >>> eight.projections(16)[Term.up_proj], eight.surplus(16)  # 2 * 16 * 48; (8 - 2) * 3 * 16 * 48
    (1536, 13824)
    """

    num_experts: int
    per_token: int
    width: int
    gated: bool = True
    shared: int = 0
    shared_gate: int = 0
    all_run: bool = False
    router: tuple[int, ...] = ()
    latent: int | None = None

    def __post_init__(self) -> None:
        require_int("num_experts", self.num_experts, least=1)
        require_int("per_token", self.per_token, least=1, most=self.num_experts)
        require_int("width", self.width, least=1)
        require_int("shared", self.shared, least=0)
        require_int("shared_gate", self.shared_gate, least=0)
        for width in (*self.router, *(() if self.latent is None else (self.latent,))):
            require_int("router or latent", width, least=1)
        if self.shared_gate and not self.shared:
            raise InputError(
                f"`shared_gate` is {self.shared_gate:,} without shared experts, expected `shared` of at least 1"
            )

    def projections(self, hidden_size: int) -> dict[Term, int]:
        """MACs a token, by term: the router, and `per_token` experts plus the shared part."""
        sizes = (hidden_size, *self.router, self.num_experts + self.shared_gate)
        router = sum(inputs * outputs for inputs, outputs in pairwise(sizes))
        inputs = hidden_size if self.latent is None else self.latent
        around = {} if self.latent is None else {Term.extra_proj: 2 * hidden_size * self.latent}
        macs = inputs * self.per_token * self.width + hidden_size * self.shared
        return {Term.router: router} | around | _matrices(macs, gated=self.gated)

    @property
    def needed(self) -> tuple[int, int]:
        """How many of how many experts that transformers runs on a token are needed."""
        return self.per_token, self.num_experts if self.all_run else self.per_token

    def surplus(self, hidden_size: int) -> int:
        """MACs a token of the experts that run without being chosen."""
        needed, run = self.needed
        inputs = hidden_size if self.latent is None else self.latent
        return (run - needed) * sum(_matrices(inputs * self.width, gated=self.gated).values())

    def shrunk(self) -> Experts:
        return replace(
            self,
            num_experts=min(self.num_experts, 4),
            per_token=min(self.per_token, 2),
            width=min(self.width, 5),
            shared=min(self.shared, 3),
            router=tuple(min(width, 4) for width in self.router),
            latent=self.latent and min(self.latent, 4),
        )


def _matrices(macs: int, *, gated: bool) -> dict[Term, int]:
    gate = {Term.gate_proj: macs} if gated else {}
    return gate | {Term.up_proj: macs, Term.down_proj: macs}
