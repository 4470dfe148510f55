"""The multiplications of the memory formula written out, one line for each kind of layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype
from kvtally.core.holding import Holding, holdings
from kvtally.core.passes import LONGEST
from kvtally.pure.size import CacheTypes, cache_types

FULL, ONCE = "all tokens", "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One line of the formula: copies * layers * heads * length * width * bytes an element = bytes of a sequence.

    `what` is K and V, latents, index keys …; `kind` how much: all tokens, ≤ 1,024, once (states).
    `copies` is 2 where K and V are of one size. `width` elements of a head take `row` bytes, scales included.

    >>> line = Product(what="K and V", kind=FULL, copies=2, layers=32, heads=8, length=32768, width=128,
    ...                row=256, dtype="bf16")
    >>> line.bytes, line.per_element  # 2 * 32 * 8 * 32768 * 128 * 2
    (4294967296, Fraction(2, 1))
    """

    what: str
    kind: str
    copies: int
    layers: int
    heads: int
    length: int
    width: int
    row: int
    dtype: str

    @property
    def per_element(self) -> Fraction:
        """Bytes an element takes, scales included."""
        return Fraction(self.row, self.width)

    @property
    def bytes(self) -> int:
        return self.copies * self.layers * self.heads * self.length * self.row

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "row"}
        return {**plain, "bytes_a_row": self.row, "bytes": self.bytes}


NAMES = {"latent": "latents", "index": "index keys", "conv": "conv inputs", "state": "states"}
PAIRED = {"k": ("K", "V"), "cross": ("cross K", "cross V")}


def products(
    decoder: Decoder, tokens: int, *, types: CacheTypes | None = None, tensor_parallel: int = 1
) -> tuple[Product, ...]:
    """The lines whose sum is `size(...).bytes_held` for one sequence of `tokens` tokens.

    Layers that keep as much of the same make one line; K and V one together where they are of one size.

    >>> from kvtally.core.decoder import lesson
    >>> [(p.what, p.copies, p.layers, p.heads, p.length, p.width) for p in products(lesson(), 100)]
    [('K and V', 2, 1, 1, 100, 64)]
    """
    types = types or cache_types()
    found: dict[Product, int] = {}
    for kept in holdings(decoder, tensor_parallel=tensor_parallel):
        for line in _paired([_product(h, types.of(h), tokens) for h in kept]):
            found[line] = found.get(line, 0) + 1
    return tuple(replace(line, layers=many) for line, many in found.items())


def _product(holding: Holding, dtype: Dtype, tokens: int) -> Product:
    what = NAMES.get(holding.part, "")
    if holding.part in ("k", "v", "cross"):
        what = PAIRED["cross" if holding.part == "cross" else "k"][holding.values]
    return Product(
        what=what,
        kind=_kind(holding),
        copies=1,
        layers=1,
        heads=holding.heads,
        length=holding.tokens(tokens),
        width=holding.width,
        row=dtype.row(holding.width),
        dtype=str(dtype),
    )


def _kind(holding: Holding) -> str:
    if not holding.grows:
        return ONCE
    if holding.part == "cross":
        return "of the source"
    held = holding.tokens(LONGEST)
    if held == LONGEST:
        return FULL
    return f"≤ {held:,}" if held == holding.tokens(2 * LONGEST) else "pooled"


def _paired(lines: list[Product]) -> list[Product]:
    """The lines of one layer, K and V of one size as one."""
    made: list[Product] = []
    for line in lines:
        for key, value in PAIRED.values():
            if made and line.what == value and replace(line, what=key) == made[-1]:
                made[-1] = replace(line, what=f"{key} and V", copies=2)
                break
        else:
            made.append(line)
    return made
