"""Latent attention: one compressed latent a token is cached, shared by all heads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtally.core.errors import InputError, require_int
from kvtally.core.passes import Pass
from kvtally.core.span import Span
from kvtally.core.tally import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA, DeepSeek-V2, arXiv:2405.04434): one latent a token is cached.

    The latent is `kv_lora_rank` + `qk_rope_head_dim` wide, shared by all heads; there is no V.
    `absorbed` False expands every latent of the context to keys and values again in each pass
    (kv_b_proj a context token), as transformers does; True folds that matrix into the query and the
    output (q_absorb, v_absorb a new token; scores and mixing over the latent itself), as engines do.
    `top_k`: an `Indexer` beside it chooses that many latents a query; all are held, and counted as read
    (and expanded where they are not absorbed), as frameworks do. `window`: a query sees the last latents
    only. `gated` (A.X-K2): q_b_proj reads the query latent twice, before and after its norm, and makes a
    gate for every value as well.
    `per_head`: each latent is expanded once, and K and V of every head are cached in its place, as
    llama.cpp does with GGUF files of the older form.

    >>> mixer = LatentAttention(num_heads=2, kv_lora_rank=6, qk_rope_head_dim=2, qk_nope_head_dim=4, v_head_dim=3)
    >>> mixer.kv_per_token, mixer.expansions(16)  # 6 * 2 * (4 + 3)
    ((8, 0), {<Term.kv_b_proj: 'kv_b_proj'>: 84})
    """

    num_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    absorbed: bool = False
    top_k: int | None = None
    window: int | None = None
    gated: bool = False
    per_head: bool = False

    def __post_init__(self) -> None:
        for name in ("num_heads", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"):
            require_int(name, getattr(self, name), least=1)
        require_int("qk_rope_head_dim", self.qk_rope_head_dim, least=0)
        if self.q_lora_rank is not None:
            require_int("q_lora_rank", self.q_lora_rank, least=1)
        elif self.gated:
            raise InputError("`gated` is True and `q_lora_rank` None, expected a query latent for the gate to read")
        if self.per_head and self.absorbed:
            raise InputError("`per_head` and `absorbed` are both True, expected one of them")
        _ = self.span

    @property
    def span(self) -> Span:
        """How far back a query looks: to the start, unless there is a `window` or `top_k`."""
        return Span(window=self.window, top_k=self.top_k)

    @property
    def latent(self) -> int:
        """Elements cached for a token."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def _query_inputs(self) -> int:
        return (self.q_lora_rank or 0) * (2 if self.gated else 1)

    @property
    def _query_outputs(self) -> int:
        gate = self.v_head_dim if self.gated else 0
        return self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim + gate)

    def projections(self, hidden_size: int) -> dict[Term, int]:
        queries = self._query_outputs
        rank = self.q_lora_rank
        terms = (
            {Term.q_proj: hidden_size * queries}
            if rank is None
            else {Term.q_a_proj: hidden_size * rank, Term.q_b_proj: self._query_inputs * self._query_outputs}
        )
        terms[Term.kv_a_proj] = hidden_size * self.latent
        terms |= self._expansion if self.per_head else {}
        if self.absorbed:
            terms[Term.q_absorb] = self.num_heads * self.qk_nope_head_dim * self.kv_lora_rank
            terms[Term.v_absorb] = self.num_heads * self.kv_lora_rank * self.v_head_dim
        terms[Term.o_proj] = self.num_heads * self.v_head_dim * hidden_size
        return terms

    @property
    def _expansion(self) -> dict[Term, int]:
        return {Term.kv_b_proj: self.kv_lora_rank * self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)}

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        return {} if self.absorbed or self.per_head else self._expansion

    def expanded(self, p: Pass) -> int:
        return 0 if self.absorbed or self.per_head else p.tokens + self.span.reached(p)

    @property
    def pair_cost(self) -> dict[Term, int]:
        if self.absorbed:
            return {Term.qk: self.num_heads * self.latent, Term.pv: self.num_heads * self.kv_lora_rank}
        key = self.qk_nope_head_dim + self.qk_rope_head_dim
        return {Term.qk: self.num_heads * key, Term.pv: self.num_heads * self.v_head_dim}

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        return self.span.pairs(p, kernel, rows)

    @property
    def kv_per_token(self) -> tuple[int, int]:
        if self.per_head:
            key = self.qk_nope_head_dim + self.qk_rope_head_dim
            return self.num_heads * key, self.num_heads * self.v_head_dim
        return self.latent, 0

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

    def shrunk(self) -> LatentAttention:
        return replace(
            self,
            num_heads=min(self.num_heads, 3),
            kv_lora_rank=min(self.kv_lora_rank, 5),
            qk_rope_head_dim=min(self.qk_rope_head_dim, 2),
            qk_nope_head_dim=min(self.qk_nope_head_dim, 4),
            v_head_dim=min(self.v_head_dim, 3),
            q_lora_rank=self.q_lora_rank and min(self.q_lora_rank, 4),
            top_k=self.top_k and min(self.top_k, 3),
            window=self.window and min(self.window, 5),
        )
