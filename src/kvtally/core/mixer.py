"""What mixes positions in a layer: the facts every mixer gives, attention, cross attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from kvtally.core.errors import InputError, require_int
from kvtally.core.passes import Pass
from kvtally.core.span import Span
from kvtally.core.tally import Term


class Mixer(Protocol):
    """The facts a mixer gives. Whoever counts asks for these and never for the class."""

    def projections(self, hidden_size: int) -> dict[Term, int]:
        """MACs for each new token, by term."""

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        """MACs for each expanded token, by term: K and V made from something else than the new tokens."""

    def expanded(self, p: Pass) -> int:
        """Tokens expanded over all passes of `p`."""

    @property
    def pair_cost(self) -> dict[Term, int]:
        """MACs for each query-key pair, by term, all heads together."""

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        """Query-key pairs over all passes of `p`, the last `rows` new positions attending."""

    @property
    def kv_per_token(self) -> tuple[int, int]:
        """Elements of K and of V that a held token takes."""

    def tokens_held(self, context: int) -> int:
        """Tokens whose K and V are held once `context` tokens are there."""

    def written(self, p: Pass) -> int:
        """Tokens whose K and V are written to the cache over all passes of `p`."""

    def read(self, p: Pass) -> int:
        """Tokens whose K and V are read from the cache over all passes of `p`."""

    @property
    def state(self) -> int:
        """Elements held that do not grow with the context."""

    @property
    def recurrent_state(self) -> int:
        """Those of `state` that are summed into token by token, which engines keep in float32."""

    def shrunk(self) -> Mixer:
        """The same kind with small sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head attention: MHA, GQA and MQA by `num_kv_heads`, sliding by `window`, pieces by `chunk`.

    `v_head_dim` is `head_dim` where it is None; `output` False leaves the output projection out.
    `gated`: q_proj also makes a gate for the output, as wide as the query. `k_is_v`: the values are
    the keys, and there is no v_proj (both are still cached). `top_k`: an `Indexer` beside it chooses
    that many blocks of `block` keys for each query; all are held. `inputs`: queries, keys and values
    are made from a vector of this width where that is not the hidden state (Zamba: with the embedding).
    `differential`: every head mixes two values, and half of the heads are subtracted from the others
    (arXiv:2410.05258), so that mixing costs twice as much. `value_mask`: a small matrix makes a mask of
    the values of the whole context, in every pass again, as transformers does for Doge (extra_proj).
    Per token: q_proj hidden*heads*head_dim, k_proj and v_proj hidden*kv_heads*head_dim, o_proj
    heads*v_head_dim*hidden. Per pair: heads*head_dim to score, heads*v_head_dim to mix.

    >>> mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8)
    >>> mixer.kv_per_token, mixer.pair_cost[Term.qk]
    ((16, 16), 32)
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    chunk: int | None = None
    output: bool = True
    gated: bool = False
    k_is_v: bool = False
    top_k: int | None = None
    block: int = 1
    inputs: int | None = None
    differential: bool = False
    value_mask: bool = False

    def __post_init__(self) -> None:
        _check_heads(self.num_heads, self.num_kv_heads)
        require_int("head_dim", self.head_dim, least=1)
        require_int("v_head_dim", self.value_dim, least=1)
        require_int("inputs", 1 if self.inputs is None else self.inputs, least=1)
        if (self.gated or self.k_is_v) and self.value_dim != self.head_dim:
            raise InputError(f"`v_head_dim` is {self.v_head_dim}, expected {self.head_dim}: as wide as a query")
        if self.differential and self.num_kv_heads % 2:
            raise InputError(f"`num_kv_heads` is {self.num_kv_heads}, expected an even number: values go in pairs")
        _ = self.span

    @property
    def value_dim(self) -> int:
        """Width of a value: `v_head_dim`, or `head_dim` where that is None."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def span(self) -> Span:
        """How far back a query looks."""
        return Span(window=self.window, chunk=self.chunk, top_k=self.top_k, block=self.block)

    def projections(self, hidden_size: int) -> dict[Term, int]:
        inputs = hidden_size if self.inputs is None else self.inputs
        terms = {
            Term.q_proj: inputs * self.num_heads * self.head_dim * (2 if self.gated else 1),
            Term.k_proj: inputs * self.num_kv_heads * self.head_dim,
        }
        if not self.k_is_v:
            terms[Term.v_proj] = inputs * self.num_kv_heads * self.value_dim
        return terms | ({Term.o_proj: self.num_heads * self.value_dim * hidden_size} if self.output else {})

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        return {Term.extra_proj: self.num_kv_heads**2 * self.value_dim} if self.value_mask else {}

    def expanded(self, p: Pass) -> int:
        return p.tokens + self.span.reached(p) if self.value_mask else 0

    @property
    def scored_again(self) -> int:
        """MACs for each pair that transformers makes a second time: it scores once for each half of the values."""
        return self.num_heads * self.head_dim if self.differential else 0

    @property
    def pair_cost(self) -> dict[Term, int]:
        values = 2 if self.differential else 1
        return {Term.qk: self.num_heads * self.head_dim, Term.pv: self.num_heads * self.value_dim * values}

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        return self.span.pairs(p, kernel, rows)

    @property
    def kv_per_token(self) -> tuple[int, int]:
        return self.num_kv_heads * self.head_dim, self.num_kv_heads * self.value_dim

    def tokens_held(self, context: int) -> int:
        return self.span.held(context)

    def written(self, p: Pass) -> int:
        return p.tokens if p.keep else 0

    def read(self, p: Pass) -> int:
        return self.span.reached(p)

    @property
    def state(self) -> int:
        return 0

    @property
    def recurrent_state(self) -> int:
        return 0

    def shrunk(self) -> Attention:
        kv = min(self.num_kv_heads, 2)
        same = self.v_head_dim in (None, self.head_dim)
        return replace(
            self,
            num_heads=kv * min(self.num_heads // self.num_kv_heads, 3),
            num_kv_heads=kv,
            head_dim=min(self.head_dim, 4),
            v_head_dim=self.v_head_dim if self.v_head_dim is None else min(self.v_head_dim, 4 if same else 3),
            window=self.window and min(self.window, 5),
            chunk=self.chunk and min(self.chunk, 6),
            top_k=self.top_k and min(self.top_k, 3),
            block=min(self.block, 2),
            inputs=self.inputs and min(self.inputs, 9),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Attention to the `source` tokens of an encoder: K and V made once, by the pass that has no past.

    Each new token projects a query and an output and is compared with every source token.
    `source_size` is the width of a source token, hidden_size where it is None. The encoder itself is
    not counted.

    >>> mixer = CrossAttention(num_heads=2, num_kv_heads=2, head_dim=4, source=10)
    >>> mixer.expanded(Pass(new=3)), mixer.expanded(Pass(new=1, past=3)), mixer.tokens_held(99)
    (10, 0, 10)
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    source: int
    source_size: int | None = None

    def __post_init__(self) -> None:
        _check_heads(self.num_heads, self.num_kv_heads)
        require_int("head_dim", self.head_dim, least=1)
        require_int("source", self.source, least=1)
        require_int("source_size", 1 if self.source_size is None else self.source_size, least=1)

    def projections(self, hidden_size: int) -> dict[Term, int]:
        width = self.num_heads * self.head_dim
        return {Term.cross_q_proj: hidden_size * width, Term.cross_o_proj: width * hidden_size}

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        macs = (self.source_size or hidden_size) * self.num_kv_heads * self.head_dim
        return {Term.cross_k_proj: macs, Term.cross_v_proj: macs}

    def _starts(self, p: Pass) -> int:
        """How many of the passes have no past, so that K and V of the source are made."""
        if p.past:
            return 0
        return 1 if p.keep else p.times

    def expanded(self, p: Pass) -> int:
        return self._starts(p) * self.source

    @property
    def pair_cost(self) -> dict[Term, int]:
        width = self.num_heads * self.head_dim
        return {Term.cross_qk: width, Term.cross_pv: width}

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        return (p.tokens if rows is None else rows * p.times) * self.source

    @property
    def kv_per_token(self) -> tuple[int, int]:
        width = self.num_kv_heads * self.head_dim
        return width, width

    def tokens_held(self, context: int) -> int:
        return self.source

    def written(self, p: Pass) -> int:
        return self.expanded(p) if p.keep else 0

    def read(self, p: Pass) -> int:
        return (p.times - self._starts(p)) * self.source

    @property
    def state(self) -> int:
        return 0

    @property
    def recurrent_state(self) -> int:
        return 0

    def shrunk(self) -> CrossAttention:
        kv = min(self.num_kv_heads, 2)
        return replace(
            self,
            num_heads=kv * min(self.num_heads // self.num_kv_heads, 3),
            num_kv_heads=kv,
            head_dim=min(self.head_dim, 4),
            source=min(self.source, 5),
            source_size=self.source_size and min(self.source_size, 6),
        )


def _check_heads(num_heads: int, num_kv_heads: int) -> None:
    require_int("num_heads", num_heads, least=1)
    require_int("num_kv_heads", num_kv_heads, least=1)
    if num_heads % num_kv_heads:
        raise InputError(
            f"`num_heads` is {num_heads} and `num_kv_heads` is {num_kv_heads}, expected a whole number of "
            "query heads for each KV head"
        )
