"""The picture of `size`: a curve for each model and type."""

from __future__ import annotations

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import ALIASES, DTYPES
from kvtally.core.errors import InputError
from kvtally.frontends.plot import MOST, Curve, lengths, svg
from kvtally.frontends.size_question import SizeAnswer
from kvtally.pure.model import read_model
from kvtally.pure.size import CacheTypes, cache_types, held_bytes


def picture(answer: SizeAnswer, also: str | None) -> str:
    """Bytes held by the question's batch against tokens, and by the same of each of `also` (`MODEL:TYPE,…`)."""
    q = answer.question
    wanted = [(q.decoder, q.types), *(_named(part, q.dtype) for part in ([] if also is None else also.split(",")))]
    if len(wanted) > MOST:
        raise InputError(f"`--also` names {len(wanted) - 1:,} more curves, expected at most {MOST - 1}")
    at = lengths(q.tokens)
    curves = []
    for decoder, types in wanted:
        needed = held_bytes(decoder, types, tensor_parallel=q.devices)
        curves.append(Curve(name=_label(decoder, types), points=[(n, needed(n, q.batch)) for n in at]))
    many = f"{q.batch:,} requests" if q.batch > 1 else "a request"
    free = q.memory.free if q.memory else None
    return svg(curves, title=f"Bytes that the cache of {many} holds", memory=free, tokens=q.tokens)


def _named(part: str, otherwise: str) -> tuple[Decoder, CacheTypes]:
    """The decoder and the types of `MODEL` or `MODEL:TYPE`."""
    model, _, name = part.rpartition(":")
    if model and (name in DTYPES or name in ALIASES):
        return read_model(model), cache_types(name)
    return read_model(part), cache_types(otherwise)


def _label(decoder: Decoder, types: CacheTypes) -> str:
    name = decoder.name.rsplit("/", 1)[-1] or "decoder"
    return f"{name} {types.k}" if types.k == types.v else f"{name} {types.k}/{types.v}"
