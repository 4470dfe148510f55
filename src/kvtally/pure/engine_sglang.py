"""SGLang: a pool of tokens for K and V each, one for sliding layers, one for states."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import dtype
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.footprint import Place
from kvtally.pure.engine_parts import Asked, Kept, kept, padded, require_kinds, summed
from kvtally.pure.size import CacheTypes

TYPES = ("fp32", "bf16", "fp16", "fp8", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRules:
    """The choices that SGLang's numbers depend on.

    A request takes whole pages of `page_size` tokens, and every pool has one page more than its tokens.
    `swa_full_tokens_ratio`: tokens of the pool of sliding layers for each of the full one. `slots`: states
    beside those of the requests. `index_dtype`: the type of index keys.
    """

    page_size: int = 1
    swa_full_tokens_ratio: Fraction = Fraction(8, 10)
    slots: int = 1
    index_dtype: str = "fp8_per_token_head"

    def __post_init__(self) -> None:
        require_int("page_size", self.page_size, least=1)
        require_int("slots", self.slots, least=0)
        share: object = self.swa_full_tokens_ratio
        if not isinstance(share, int | float | Fraction) or not 0 < share <= 1:
            raise InputError(f"`swa_full_tokens_ratio` is {share!s:.60}, expected more than 0 and at most 1")


def pool(parts: tuple[Kept, ...], tokens: int, *, types: CacheTypes, rules: SglangRules) -> dict[Place, int]:
    """Bytes of a pool of `tokens` tokens for these layers, by layer and part: (tokens + page) * bytes a token.

    >>> from kvtally.core.decoder import lesson
    >>> from kvtally.pure.size import cache_types
    >>> pool(kept(lesson()), 9, types=cache_types("bf16"), rules=SglangRules())  # (9 + 1) * 64 * 2
    {(0, 'k'): 1280, (0, 'v'): 1280}
    """
    of = {"v": types.v, "index": dtype(rules.index_dtype, what="index_dtype")}
    rows = tokens + rules.page_size
    return summed(
        ((part.layer, name), rows * part.bytes(name, of.get(name, types.k))) for part in parts for name in part.names
    )


def reserve(decoder: Decoder, asked: Asked, rules: SglangRules) -> dict[Place, int]:
    """Bytes of pools just large enough for the requests, by layer and part.

    The pool of sliding layers has its share of the tokens of the full one, however small the window; where
    that is less than the windows, both are larger.
    Source: sglang/srt/mem_cache/memory_pool.py. Not counted: index tables of requests.
    """
    types, batch = asked.types, asked.batch
    parts = kept(decoder, tensor_parallel=asked.tensor_parallel)
    require_kinds("SGLang", parts, ("full", "sliding", "index", "recurrent"))
    for name, given in (("k_dtype", types.k), ("v_dtype", types.v)):
        require_one_of(name, str(given), TYPES)
    whole = batch * padded(asked.tokens, rules.page_size)
    full = tuple(part for part in parts if part.kind in ("full", "index"))
    slides = tuple(part for part in parts if part.kind == "sliding")
    share = rules.swa_full_tokens_ratio if full else Fraction(1)
    window = max((part.limit or 0 for part in slides), default=0)
    whole = padded(max(whole, -int(-batch * min(asked.tokens, window) // share)), rules.page_size)
    short = padded(-int(-whole * share // 1), rules.page_size)
    pools = (pool(full, whole, types=types, rules=rules), pool(slides, short, types=types, rules=rules))
    states = [part for part in parts if part.kind == "recurrent"]
    rows = batch + rules.slots
    of = {"conv": types.conv, "state": types.state}
    kept_by_request = (
        ((part.layer, name), rows * part.bytes(name, of[name])) for part in states for name in part.names
    )
    return summed((*pools[0].items(), *pools[1].items(), *kept_by_request))


def gigabytes(n: int) -> str:
    """What SGLang prints as GB: bytes / 2^30, two decimals.

    >>> gigabytes(94 * 128 * 367404 * 2)
    '8.23'
    """
    return f"{n / 2**30:.2f}"
