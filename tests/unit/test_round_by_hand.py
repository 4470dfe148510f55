"""Rounding in plain Python: against the tensors of `kvtally.live.schemes`, written apart, bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally.core.dtype import DTYPES
from kvtally.core.errors import InputError
from kvtally.pure.round_by_hand import BY_HAND, bf16, e2m1, e4m3, e5m2, fp16, read_back
from rows_to_round import hard, random


@pytest.mark.parametrize("name", BY_HAND)
def test_a_row_is_read_back_as_the_tensors_of_live_are(name: str) -> None:
    torch = pytest.importorskip("torch")
    schemes = pytest.importorskip("kvtally.live.schemes")
    assert tuple(BY_HAND) == schemes.SCHEMES
    rows = np.concatenate([hard(64), random(21, 60, 64)])
    expected = schemes.rounded(schemes.scheme(name), torch.from_numpy(rows.copy())).tolist()
    assert [read_back(name, row) for row in rows.tolist()] == expected


SMALL = {  # every number that is not negative, written down from the layout: exponent bits, mantissa bits, bias
    e2m1: [(0.5 * m if e == 0 else (1 + m / 2) * 2 ** (e - 1)) for e in range(4) for m in range(2)],
    e4m3: [(m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)][:-1],
    e5m2: [(m * 2.0**-16 if e == 0 else (1 + m / 4) * 2.0 ** (e - 15)) for e in range(31) for m in range(4)],
    fp16: [(m * 2.0**-24 if e == 0 else (1 + m / 1024) * 2.0 ** (e - 15)) for e in range(31) for m in range(1024)],
}


@pytest.mark.parametrize("one", SMALL)
def test_a_small_float_is_the_nearest_of_all_there_are_and_a_tie_goes_to_the_even_code(one) -> None:  # type: ignore[no-untyped-def]
    levels = SMALL[one]
    for code, (low, high) in enumerate(pairwise(levels)):
        middle = (low + high) / 2
        assert (one(low), one(math.nextafter(middle, 0)), one(math.nextafter(middle, math.inf))) == (low, low, high)
        assert one(middle) == levels[code + code % 2]
        assert one(-middle) == -levels[code + code % 2]
    if one is not fp16:
        assert one(1e30) == levels[-1]
        assert one(-math.inf) == -levels[-1]
    assert math.copysign(1, one(-0.0)) == -1


@given(st.floats(width=32, allow_nan=False))
def test_bf16_is_the_nearest_of_8_bits(value: float) -> None:
    found = bf16(value)
    if math.isinf(found):
        assert abs(value) >= 2.0**127 * (2 - 2**-8)
        return
    step = Fraction(2) ** (max(math.frexp(value)[1] - 1, -126) - 7)
    exact = Fraction(value) / step
    assert Fraction(found) == round(exact) * step


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=40), st.sampled_from([8, 4, 2]))
def test_levels_of_a_row_are_evenly_spaced_from_its_smallest(row: list[float], bits: int) -> None:
    found = read_back(f"int{bits}", row)
    assert len(set(found)) <= 2**bits
    scale = (max(row) - min(row)) / (2**bits - 1)
    slack = 1000 * 2**-10 + 2**bits * 2**-24  # what fp16 takes off the zero-point, and off the scale at every level
    assert all(abs(a - b) <= scale / 2 + slack for a, b in zip(found, row, strict=True))


def test_blocks_do_not_see_each_other_and_a_part_of_one_is_refused() -> None:
    row = random(22, 1, 64)[0].tolist()
    for name in (n for n in BY_HAND if DTYPES[n].block):
        assert read_back(name, row) == read_back(name, row[:32]) + read_back(name, row[32:])
        with pytest.raises(InputError, match=f"`{name}` has blocks of"):
            read_back(name, row[:40])
    assert read_back("int4", []) == []
    with pytest.raises(InputError, match="`dtype` is 'int4_g32'; known: `bf16`, "):
        read_back("int4_g32", row)
