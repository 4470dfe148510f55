"""What a row of numbers is when it is read back from a cache of lower precision, in plain Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from kvtally.core.dtype import DTYPES
from kvtally.core.errors import require_one_of

Row = list[float]


def read_back(name: str, row: Row) -> Row:
    """`row`, K or V of one token and head, as it is read back from a cache of the type `name`.

    Elements are finite, and taken as float32 first. Every step is rounded to float32, as engines compute, and
    scales and zero-points to what they are stored as. int8, int4 and int2 share a scale and a zero a row.
    The types are those of `core/dtype.py` that `BY_HAND` lists; a row of no whole number of blocks is refused.

    >>> read_back("int2", [0.0, 1.0, 4.0, 9.0, 1.5])  # 4 levels: 0, 3, 6, 9
    [0.0, 0.0, 3.0, 9.0, 0.0]
    >>> read_back("fp16", [0.1, 70000.0])
    [0.0999755859375, inf]
    """
    require_one_of("dtype", name, BY_HAND)
    DTYPES[name].row(len(row))  # refuses what is no whole number of blocks
    block = DTYPES[name].block or len(row) or 1
    single = [f32(v) for v in row]
    return [v for start in range(0, len(row), block) for v in BY_HAND[name](single[start : start + block])]


def f32(v: float) -> float:
    """The nearest float32, ties to even; infinite beyond its range."""
    return _packed("<f", v)


def fp16(v: float) -> float:
    """The nearest float16, ties to even; infinite from 65,520 on."""
    return _packed("<e", v)


def bf16(v: float) -> float:
    """The nearest bfloat16, ties to even: the upper 16 of float32's 32 bits, after adding what rounds them.

    >>> bf16(1 + 2**-8), bf16(1 + 3 * 2**-8)  # halfway: to the even one of the two
    (1.0, 1.015625)
    """
    (bits,) = struct.unpack("<I", struct.pack("<f", v))
    bits += 0x7FFF + (bits >> 16 & 1)
    (rounded,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return float(rounded)


def small_float(v: float, mantissa: int, least: int, most: float) -> float:
    """The nearest number of `mantissa` bits after the leading one, ties to even; beyond ±`most` it is ±`most`.

    2^`least` is the least that has a leading one; below, steps stay as they are there.

    >>> [small_float(v, 3, -6, 448.0) for v in (1.0625, 1.1875, 1000.0, 2.0**-10)]  # fp8_e4m3
    [1.0, 1.25, 448.0, 0.0]
    """
    size = min(abs(v), most)
    step = math.ldexp(1.0, max(math.frexp(size)[1] - 1, least) - mantissa)
    return math.copysign(min(round(size / step) * step, most), v)


def e4m3(v: float) -> float:
    """fp8 of 4 exponent bits: engines' `fp8`."""
    return small_float(v, 3, -6, 448.0)


def e5m2(v: float) -> float:
    """fp8 of 5 exponent bits."""
    return small_float(v, 2, -14, 57344.0)


def e2m1(v: float) -> float:
    """fp4: ±0, 0.5, 1, 1.5, 2, 3, 4, 6."""
    return small_float(v, 1, 0, 6.0)


def _packed(form: str, v: float) -> float:
    try:
        (packed,) = struct.unpack(form, struct.pack(form, v))
    except OverflowError:
        return math.copysign(math.inf, v)
    return float(packed)


def _each(one: Callable[[float], float]) -> Callable[[Row], Row]:
    return lambda block: [one(v) for v in block]


def _grouped(bits: int) -> Callable[[Row], Row]:
    """q * scale + zero, q from 0 to 2^bits - 1, scale and zero in fp16."""
    most = 2**bits - 1

    def read(block: Row) -> Row:
        zero, scale = fp16(min(block)), fp16(f32(f32(max(block) - min(block)) / most))
        steps = [round(f32(f32(v - zero) / scale)) if scale else 0 for v in block]
        return [f32(f32(scale * min(max(step, 0), most)) + zero) for step in steps]

    return read


def _per_token_head(most: float, one: Callable[[float], float]) -> Callable[[Row], Row]:
    """one(x / scale) * scale with scale = max(largest |x| / most, 1e-6)."""

    def read(block: Row) -> Row:
        scale = max(f32(max(map(abs, block)) / most), f32(1e-6))
        inverse = f32(1 / scale)
        return [f32(one(f32(v * inverse)) * scale) for v in block]

    return read


def _nvfp4(block: Row) -> Row:
    scale = e4m3(f32(max(map(abs, block)) * f32(1 / 6)))
    inverse = f32(1 / scale) if scale else 0.0
    return [e2m1(f32(v * inverse)) * scale for v in block]


def _q8_0(block: Row) -> Row:
    d = f32(max(map(abs, block)) / 127)
    steps = [f32(v * _inverse(d)) for v in block]
    return [math.copysign(_cut(abs(step) + 0.5), step) * fp16(d) for step in steps]


def _around_zero(half: int) -> Callable[[Row], Row]:
    """q4_0 and q5_0: the element farthest from 0 is exactly at `half` steps, on its own side."""

    def read(block: Row) -> Row:
        d = f32(max(block, key=abs) / -half)
        steps = [_cut(f32(f32(v * _inverse(d)) + half + 0.5)) for v in block]
        return [(min(step, 2 * half - 1) - half) * fp16(d) for step in steps]

    return read


def _from_smallest(most: int) -> Callable[[Row], Row]:
    """q4_1 and q5_1: levels from the smallest element to the largest."""

    def read(block: Row) -> Row:
        low = min(block)
        d = f32(f32(max(block) - low) / most)
        steps = [_cut(f32(f32(f32(v - low) * _inverse(d)) + 0.5)) for v in block]
        return [f32(f32(min(step, most) * fp16(d)) + fp16(low)) for step in steps]

    return read


def _inverse(d: float) -> float:
    return f32(1 / d) if d else 0.0


def _cut(v: float) -> int:
    """Without its fraction; 0 where 1 / d was infinite."""
    return int(v) if math.isfinite(v) else 0


BY_HAND: dict[str, Callable[[Row], Row]] = {
    "fp32": _each(f32),
    "bf16": _each(bf16),
    "fp16": _each(fp16),
    "fp8_e4m3": _each(e4m3),
    "fp8_e5m2": _each(e5m2),
    "fp8_per_token_head": _per_token_head(448.0, e4m3),
    "int8": _grouped(8),
    "int8_per_token_head": _per_token_head(127.0, lambda v: max(min(round(v), 127), -128)),
    "int4": _grouped(4),
    "int2": _grouped(2),
    "nvfp4": _nvfp4,
    "q8_0": _q8_0,
    "q5_1": _from_smallest(31),
    "q5_0": _around_zero(16),
    "q4_1": _from_smallest(15),
    "q4_0": _around_zero(8),
}
