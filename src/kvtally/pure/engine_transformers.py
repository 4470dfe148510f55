"""transformers: caches that grow with the text, or have one static length."""

from __future__ import annotations

from dataclasses import dataclass

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.footprint import Place
from kvtally.pure.engine_parts import ATTENTION, Asked, Kept, kept, require_kinds, summed

CACHES = ("dynamic", "static")
TYPES = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersRules:
    """Which cache, and how long it may get.

    `cache` "dynamic" grows, and a sliding layer keeps window - 1 tokens between passes; "static" has
    `max_cache_len` tokens from the start (None: as many as asked for), and a sliding layer at most its window.
    """

    cache: str = "dynamic"
    max_cache_len: int | None = None

    def __post_init__(self) -> None:
        require_one_of("cache", self.cache, CACHES)
        require_int("max_cache_len", 1 if self.max_cache_len is None else self.max_cache_len, least=1)
        if self.max_cache_len is not None and self.cache != "static":
            raise InputError(
                f"`max_cache_len` is {self.max_cache_len:,} and `cache` `{self.cache}`, expected `static`",
                hint="leave it out: a dynamic cache has no length of its own",
            )


def reserve(decoder: Decoder, asked: Asked, rules: TransformersRules) -> dict[Place, int]:
    """Bytes of the cache of the sequences once all tokens are there, by layer and part.

    Convolutions keep all their taps, one more than the next token needs. Not counted: heads that a model
    repeats before it caches them (Falcon-40b), what a concatenation takes while it runs.
    """
    types, batch = asked.types, asked.batch
    parts = kept(decoder, tensor_parallel=asked.tensor_parallel)
    require_kinds("transformers", parts, (*ATTENTION, "recurrent"))
    for name, given in (("k_dtype", types.k), ("v_dtype", types.v)):
        require_one_of(name, str(given), TYPES)
    of = {"v": types.v, "index": types.index, "conv": types.conv, "state": types.state}
    rows = (
        ((part.layer, name), batch * length(part, asked.tokens, rules) * part.bytes(name, of.get(name, types.k)))
        for part in parts
        for name in part.names
    )
    taps = (
        ((part.layer, row.part), batch * types.conv.row(row.width)) for part in parts for row in part.rows if row.taps
    )
    return summed((*rows, *taps))


def length(part: Kept, tokens: int, rules: TransformersRules) -> int:
    """Tokens that a layer has room for once `tokens` tokens are there; 1 for a state."""
    if part.kind == "recurrent":
        return 1
    if part.kind == "cross":
        return part.limit or 0
    most = tokens if rules.max_cache_len is None else rules.max_cache_len
    needed = tokens if part.limit is None else min(tokens, part.limit)
    if most < needed:
        raise InputError(f"`max_cache_len` is {most:,}, expected at least {needed:,}: what layer {part.layer} looks at")
    if part.limit is None:
        return most
    return min(most, part.limit - (1 if rules.cache == "dynamic" else 0))
