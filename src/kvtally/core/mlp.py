"""What follows the mixer in a layer: a dense MLP, or experts behind a router."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def shrunk(self) -> Mlp:
        return replace(self, width=min(self.width, 6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`num_experts` MLPs of `width`, `per_token` of them chosen by a router, and `shared` width always on.

    `shared_gate` is a gate of one unit on the shared part (Qwen's), which counts with the router.

    >>> Experts(num_experts=8, per_token=2, width=48).projections(16)[Term.up_proj]  # 2 * 16 * 48
    1536
    """

    num_experts: int
    per_token: int
    width: int
    gated: bool = True
    shared: int = 0
    shared_gate: bool = False

    def __post_init__(self) -> None:
        require_int("num_experts", self.num_experts, least=1)
        require_int("per_token", self.per_token, least=1, most=self.num_experts)
        require_int("width", self.width, least=1)
        require_int("shared", self.shared, least=0)
        if self.shared_gate and not self.shared:
            raise InputError("`shared_gate` is True without shared experts, expected `shared` of at least 1")

    def projections(self, hidden_size: int) -> dict[Term, int]:
        """MACs a token, by term: the router, and `per_token` experts plus the shared part."""
        router = hidden_size * (self.num_experts + self.shared_gate)
        return {Term.router: router} | _matrices(
            hidden_size * (self.per_token * self.width + self.shared), gated=self.gated
        )

    def shrunk(self) -> Experts:
        return replace(
            self,
            num_experts=min(self.num_experts, 4),
            per_token=min(self.per_token, 2),
            width=min(self.width, 5),
            shared=min(self.shared, 3),
        )


def _matrices(macs: int, *, gated: bool) -> dict[Term, int]:
    gate = {Term.gate_proj: macs} if gated else {}
    return gate | {Term.up_proj: macs, Term.down_proj: macs}
