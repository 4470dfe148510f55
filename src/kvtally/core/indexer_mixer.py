"""A lightning indexer: cheap scores of all keys, by which attention chooses the few it looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtally.core.errors import require_int
from kvtally.core.passes import Pass
from kvtally.core.strided_span import StridedSpan
from kvtally.core.tally import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The indexer of sparse attention (DeepSeek-V3.2, arXiv:2512.02556), for `Layer.beside`.

    It scores every query against every key before it with `num_heads` small heads over one index key a
    token, which is cached (`head_dim` elements; K only); the attention it serves says by its own
    `top_k` how many of them it looks at. Its queries come from the query latent of that attention
    (`q_lora_rank` wide) or, where that is None, from the hidden state. `weighted`: a weight for each
    head and query is made (index_weights_proj), by which scores are summed (index_sum).
    `ratio`: one index key stands for that many tokens (DeepSeek-V4), pooled from two windows of them
    side by side, so that index_k_proj makes values and pooling weights of both: four times as much.
    Per token: index_q_proj inputs*heads*head_dim, index_k_proj hidden*head_dim. Per pair:
    heads*head_dim to score, heads to sum. The choice itself and the ReLU are not counted. MiniMax-M3
    has `weighted=False` and `q_lora_rank=None`; the blocks it chooses are a matter of its attention.
    `averaged`: the keys of all tokens are kept, and the mean of every `ratio` of them is scored, query
    by query, so that a dense kernel makes no pair more (Qwen4-Exp).

    >>> mixer = Indexer(num_heads=3, head_dim=4, q_lora_rank=5)
    >>> mixer.projections(10)[Term.index_q_proj], mixer.pair_cost[Term.index_qk], mixer.kv_per_token
    (60, 12, (4, 0))
    """

    num_heads: int
    head_dim: int
    q_lora_rank: int | None = None
    weighted: bool = True
    ratio: int = 1
    averaged: bool = False

    def __post_init__(self) -> None:
        for name in ("num_heads", "head_dim", "ratio"):
            require_int(name, getattr(self, name), least=1)
        if self.q_lora_rank is not None:
            require_int("q_lora_rank", self.q_lora_rank, least=1)

    @property
    def span(self) -> StridedSpan:
        """How far back a query looks: to the start."""
        return StridedSpan(stride=self.ratio)

    @property
    def key_width(self) -> int:
        """What index_k_proj makes of a token."""
        return self.head_dim * (4 if self.pooled else 1)

    @property
    def pooled(self) -> bool:
        """Whether one key is kept for every `ratio` tokens."""
        return self.ratio > 1 and not self.averaged

    @property
    def kept(self) -> StridedSpan:
        """The keys that are kept, as far back as they go."""
        return self.span if self.pooled else StridedSpan(stride=1)

    def waiting(self, context: int) -> int:
        """Elements of tokens that are not pooled yet, or once more: kept beside what is held, whatever the context."""
        if not self.pooled:
            return 0
        again = 2 * self.ratio * self.head_dim if context >= self.ratio else 0
        return self.key_width * (context % self.ratio) + again

    def projections(self, hidden_size: int) -> dict[Term, int]:
        inputs = hidden_size if self.q_lora_rank is None else self.q_lora_rank
        terms = {
            Term.index_q_proj: inputs * self.num_heads * self.head_dim,
            Term.index_k_proj: hidden_size * self.key_width,
        }
        return terms | ({Term.index_weights_proj: hidden_size * self.num_heads} if self.weighted else {})

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        return {}

    def expanded(self, p: Pass) -> int:
        return 0

    @property
    def pair_cost(self) -> dict[Term, int]:
        scores = {Term.index_qk: self.num_heads * self.head_dim}
        return scores | ({Term.index_sum: self.num_heads} if self.weighted else {})

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        return self.span.pairs(p, "causal" if self.averaged else kernel, rows)

    @property
    def kv_per_token(self) -> tuple[int, int]:
        return self.head_dim, 0

    def tokens_held(self, context: int) -> int:
        return self.kept.held(context)

    def written(self, p: Pass) -> int:
        return self.kept.written(p)

    def read(self, p: Pass) -> int:
        return self.kept.reached(p)

    @property
    def state(self) -> int:
        return 0

    @property
    def recurrent_state(self) -> int:
        return 0

    def shrunk(self) -> Indexer:
        return replace(
            self,
            num_heads=min(self.num_heads, 2),
            head_dim=min(self.head_dim, 3),
            q_lora_rank=self.q_lora_rank and min(self.q_lora_rank, 4),
            ratio=min(self.ratio, 2),
        )
