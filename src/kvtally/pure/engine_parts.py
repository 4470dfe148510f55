"""What an engine sees of a decoder: what each layer keeps, of which kind, and how far back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeVar

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype
from kvtally.core.errors import InputError, require_int
from kvtally.core.holding import Holding, holdings
from kvtally.core.mixer import Mixer
from kvtally.core.passes import LONGEST, Pass
from kvtally.pure.size import CacheTypes

Key = TypeVar("Key", bound=Hashable)

FAR = LONGEST << 20  # a context longer than any
ATTENTION = ("full", "sliding", "chunked", "index", "cross")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an engine is asked to hold: `batch` requests of `tokens` tokens, in these types, on so many devices."""

    tokens: int
    batch: int = 1
    types: CacheTypes
    tensor_parallel: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one mixer of layer `layer` keeps on one device, one row for each part.

    `kind` is full, sliding, chunked, index, cross or recurrent; `limit` how many tokens at most (of the
    source for cross), None for all of them.

    >>> from kvtally.core.decoder import lesson
    >>> [(k.kind, k.limit, k.elements("k")) for k in kept(lesson())]
    [('full', None, 64)]
    """

    layer: int
    kind: str
    limit: int | None
    rows: tuple[Holding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Its parts, each once: k, v, latent …"""
        return tuple(dict.fromkeys(row.part for row in self.rows))

    def elements(self, *parts: str) -> int:
        """Elements of a token (or of the state) in `parts`."""
        return sum(row.heads * row.width for row in self.rows if row.part in parts)

    def bytes(self, part: str, dtype: Dtype) -> int:
        """Bytes of a token (or of the state) in `part`, where every head has a row of its own."""
        return sum(dtype.bytes(row.heads, row.width) for row in self.rows if row.part == part)


@lru_cache(maxsize=16)  # a search for what fits asks for one decoder again and again
def kept(decoder: Decoder, *, tensor_parallel: int = 1) -> tuple[Kept, ...]:
    """What every mixer of the decoder keeps of its own, in the order of the layers.

    One entry for several tokens (compressed attention) is refused: no engine's rule for it is known here.
    """
    found: list[Kept] = []
    for index, rows in enumerate(holdings(decoder, tensor_parallel=tensor_parallel)):
        by_mixer: dict[int, list[Holding]] = {}
        for row in rows:
            by_mixer.setdefault(id(row.mixer), []).append(row)
        for own in by_mixer.values():
            kind, limit = _kind(index, own[0])
            found.append(Kept(layer=index, kind=kind, limit=limit, rows=tuple(own)))
    return tuple(found)


def choices(engine: str, rules: type[Any], given: Mapping[str, Any]) -> Any:
    """The `rules` of an engine with the choices given by name; an InputError for a name that is not known."""
    known = [field.name for field in fields(rules)]
    for name in given:
        if name not in known:
            raise InputError(f"`{name}` is no choice of {engine}; known: " + ", ".join(f"`{n}`" for n in known))
    return rules(**given)


def require_flags(rules: object, *names: str) -> None:
    """Nothing where these fields are True or False; otherwise an InputError that names the one that is not."""
    for name in names:
        if not isinstance(getattr(rules, name), bool):
            raise InputError(f"`{name}` is {getattr(rules, name)!r}, expected True or False")


def require_kinds(engine: str, parts: tuple[Kept, ...], known: tuple[str, ...]) -> None:
    """Nothing where every part is of a known kind; otherwise an InputError naming the layer."""
    for part in parts:
        if part.kind not in known:
            raise InputError(
                f"layer {part.layer} keeps a cache of kind `{part.kind}`, and how {engine} allocates that is not "
                f"known here; known: " + ", ".join(f"`{kind}`" for kind in known),
                hint="ask for the bytes held, or for another engine",
            )


def summed(pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    """The sum of the numbers of each key: one layer may keep more than one thing.

    >>> summed([("a", 1), ("b", 2), ("a", 3)])
    {'a': 4, 'b': 2}
    """
    sums: dict[Key, int] = {}
    for key, n in pairs:
        sums[key] = sums.get(key, 0) + n
    return sums


def padded(n: int, to: int) -> int:
    """`n` filled up to a multiple of `to`.

    >>> padded(5000, 256)
    5120
    """
    return -(-n // require_int("to", to, least=1)) * to


def _kind(index: int, row: Holding) -> tuple[str, int | None]:
    if not row.grows:
        return "recurrent", None
    if row.part == "cross":
        return "cross", row.tokens(0)
    limit = row.tokens(FAR)
    if limit == FAR:
        return ("index" if row.part == "index" else "full"), None
    if limit != row.tokens(2 * FAR):
        raise InputError(
            f"layer {index} keeps one entry for several tokens, and how engines allocate that is not known here",
            hint="ask for the bytes held",
        )
    return ("chunked" if _cuts(row.mixer, limit) else "sliding"), limit


def _cuts(mixer: Mixer, limit: int) -> bool:
    """Whether a query at position `limit` starts a new piece and sees itself alone; a window has moved by one."""
    return limit > 1 and mixer.pairs(Pass(new=1, past=limit), "causal") == 1
