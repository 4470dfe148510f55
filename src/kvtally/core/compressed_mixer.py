"""Compressed attention: a window of tokens, and before it one entry for many tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtally.core.errors import InputError, require_int
from kvtally.core.passes import Pass
from kvtally.core.span import Span
from kvtally.core.strided_span import StridedSpan
from kvtally.core.tally import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """The attention of DeepSeek-V4: one KV head, K = V, over the last `window` tokens and compressed entries.

    Every `ratio` tokens are pooled into one entry as wide as a key (None: no entries, the window alone).
    `overlap` (CSA; HCA without): an entry is pooled from its own tokens and the ones before, so that two
    values and two pooling weights are made of each token. `top_k`: an `Indexer` of the same ratio beside
    it chooses that many entries a query. Queries are of low rank, and so is the output: `o_groups`
    groups of heads are each projected to `o_lora_rank`, then together to the hidden size.
    Per token: q_a_proj, q_b_proj, k_proj hidden*head_dim, compress_proj hidden*2*head_dim (4* with
    overlap), o_a_proj heads*head_dim*o_lora_rank, o_b_proj groups*o_lora_rank*hidden. Per pair:
    heads*head_dim to score and to mix. Pooling is element-wise and not counted. Values and weights
    of the last tokens, which wait to be pooled, are `waiting` and not among the elements held.

    >>> mixer = CompressedAttention(num_heads=4, head_dim=6, window=5, ratio=4,
    ...                             q_lora_rank=3, o_lora_rank=2, o_groups=2)
    >>> mixer.tokens_held(11), mixer.kv_per_token, mixer.projections(10)[Term.compress_proj]  # 5 + 11 // 4; 10 * 2 * 6
    (7, (6, 0), 120)
    """

    num_heads: int
    head_dim: int
    window: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    ratio: int | None = None
    overlap: bool = False
    top_k: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_heads", "head_dim", "window", "q_lora_rank", "o_lora_rank", "o_groups"):
            require_int(name, getattr(self, name), least=1)
        if self.num_heads % self.o_groups:
            raise InputError(f"`o_groups` is {self.o_groups} and `num_heads` {self.num_heads}, expected whole groups")
        if self.ratio is not None:
            require_int("ratio", self.ratio, least=2)
            _ = self.entries
        elif self.overlap or self.top_k is not None:
            raise InputError(f"`overlap` is {self.overlap} and `top_k` {self.top_k} without a `ratio`, expected one")

    @property
    def span(self) -> Span:
        """How far back a query looks among tokens."""
        return Span(window=self.window)

    @property
    def entries(self) -> StridedSpan | None:
        """Which compressed entries a query sees."""
        return None if self.ratio is None else StridedSpan(stride=self.ratio, top_k=self.top_k)

    @property
    def compressed_width(self) -> int:
        """What compress_proj makes of a token: values and pooling weights of its entry, or of two of them."""
        return 0 if self.ratio is None else 2 * self.head_dim * (2 if self.overlap else 1)

    def waiting(self, context: int) -> int:
        """Elements of tokens that are not pooled yet, or once more: kept beside what is held, whatever the context."""
        if self.ratio is None:
            return 0
        again = 2 * self.ratio * self.head_dim if self.overlap and context >= self.ratio else 0
        return self.compressed_width * (context % self.ratio) + again

    def projections(self, hidden_size: int) -> dict[Term, int]:
        width = self.num_heads * self.head_dim
        terms = {
            Term.q_a_proj: hidden_size * self.q_lora_rank,
            Term.q_b_proj: self.q_lora_rank * width,
            Term.k_proj: hidden_size * self.head_dim,
            Term.o_a_proj: width * self.o_lora_rank,
            Term.o_b_proj: self.o_groups * self.o_lora_rank * hidden_size,
        }
        return terms | ({Term.compress_proj: hidden_size * self.compressed_width} if self.ratio else {})

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        return {}

    def expanded(self, p: Pass) -> int:
        return 0

    @property
    def pair_cost(self) -> dict[Term, int]:
        return {Term.qk: self.num_heads * self.head_dim, Term.pv: self.num_heads * self.head_dim}

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        near = self.span.pairs(p, kernel, rows)
        return near + (self.entries.pairs(p, kernel, rows) if self.entries else 0)

    @property
    def kv_per_token(self) -> tuple[int, int]:
        return self.head_dim, 0

    def tokens_held(self, context: int) -> int:
        return self.span.held(context) + (self.entries.held(context) if self.entries else 0)

    def written(self, p: Pass) -> int:
        return (p.tokens if p.keep else 0) + (self.entries.written(p) if self.entries else 0)

    def read(self, p: Pass) -> int:
        return self.span.reached(p) + (self.entries.reached(p) if self.entries else 0)

    @property
    def state(self) -> int:
        return 0

    @property
    def recurrent_state(self) -> int:
        return 0

    def shrunk(self) -> CompressedAttention:
        groups = min(self.o_groups, 2)
        return replace(
            self,
            num_heads=groups * min(self.num_heads // self.o_groups, 2),
            head_dim=min(self.head_dim, 4),
            window=min(self.window, 5),
            q_lora_rank=min(self.q_lora_rank, 3),
            o_lora_rank=min(self.o_lora_rank, 3),
            o_groups=groups,
            ratio=self.ratio and min(self.ratio, 3 if self.overlap else 4),
            top_k=self.top_k and min(self.top_k, 2),
        )
