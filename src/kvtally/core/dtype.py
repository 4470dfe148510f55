"""How many bytes an element takes, scales included."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvtally.core.errors import InputError, require_int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """An element type of a cache: `bits` an element, and a scale of `scale` bytes for every `block` elements.

    `block` 0 with a `scale` means one scale a row: for every token, head, and K or V. A scale of a whole
    tensor is not counted. `exact`: numbers are kept as computed, so that states may have this type, too.

    >>> DTYPES["q8_0"].row(128), DTYPES["int8_per_token_head"].row(128), DTYPES["nvfp4"].row(128)
    (136, 132, 72)
    """

    name: str
    bits: int
    block: int = 0
    scale: int = 0
    exact: bool = False

    def row(self, width: int) -> int:
        """Bytes of `width` elements that lie together: K or V of one token and head.

        A row that is no whole number of bytes is filled up; one of no whole number of blocks is refused.
        """
        require_int("width", width, least=0)
        if not self.block:
            return (width * self.bits + 7) // 8 + (self.scale if width else 0)
        if width % self.block:
            raise InputError(
                f"`{self.name}` has blocks of {self.block} elements and a row is {width} wide, expected whole blocks",
                hint=f"choose a type without blocks, such as {', '.join(PLAIN)}",
            )
        return width // self.block * (self.block * self.bits // 8 + self.scale)

    def bytes(self, rows: int, width: int) -> int:
        """Bytes of `rows` rows of `width` elements.

        >>> DTYPES["bf16"].bytes(8, 128)
        2048
        """
        return rows * self.row(width)

    @property
    def per_element(self) -> Fraction:
        """Bytes an element takes on average, without scales of a whole row.

        >>> DTYPES["q4_0"].per_element
        Fraction(9, 16)
        """
        return Fraction(self.bits, 8) + (Fraction(self.scale, self.block) if self.block else 0)

    def __str__(self) -> str:
        return self.name


def _ggml(name: str, bits: int, scale: int) -> Dtype:
    """A type of llama.cpp: blocks of 32 with a scale of 2 bytes, and a minimum of 2 more (and `bits` 5: high bits)."""
    return Dtype(name=name, bits=bits, block=32, scale=scale)


DTYPES: dict[str, Dtype] = {
    d.name: d
    for d in (
        Dtype(name="fp32", bits=32, exact=True),
        Dtype(name="bf16", bits=16, exact=True),
        Dtype(name="fp16", bits=16, exact=True),
        Dtype(name="fp8", bits=8),
        Dtype(name="fp8_e4m3", bits=8),
        Dtype(name="fp8_e5m2", bits=8),
        Dtype(name="fp8_per_token_head", bits=8, scale=4),  # a float32 scale
        Dtype(name="int8", bits=8, scale=4),  # int8, int4, int2: a scale and a zero of 2 bytes each a row, as in KIVI
        Dtype(name="int8_per_token_head", bits=8, scale=4),
        Dtype(name="int4", bits=4, scale=4),
        Dtype(name="int4_per_token_head", bits=4, scale=4),  # a scale and a zero of 2 bytes each, or a float32 scale
        Dtype(name="int2", bits=2, scale=4),
        *(Dtype(name=f"int{b}_g{g}", bits=b, block=g, scale=4) for b in (8, 4, 2) for g in (32, 64)),  # or a group
        Dtype(name="nvfp4", bits=4, block=16, scale=1),  # an fp8 scale
        _ggml("q8_0", 8, 2),
        _ggml("q5_1", 5, 4),
        _ggml("q5_0", 5, 2),
        _ggml("q4_1", 4, 4),
        _ggml("q4_0", 4, 2),
    )
}
PLAIN = ("bf16", "fp8", "int8")
ALIASES = {
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "torch.float32": "fp32",
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
}


def dtype(name: str, *, what: str = "dtype") -> Dtype:
    """The element type that `name` means; `what` names the field in the error for one that is not known.

    >>> dtype("bfloat16").row(64)
    128
    """
    found = DTYPES.get(ALIASES.get(name, name))
    if found is None:
        known = ", ".join(f"`{n}`" for n in DTYPES)
        raise InputError(f"`{what}` is {name!r:.60}; known: {known}", hint="name one of these")
    return found
