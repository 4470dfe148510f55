"""How many bytes an element takes: each type against its layout, written out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvtally.core.dtype import ALIASES, DTYPES, dtype
from kvtally.core.errors import InputError

ROWS_OF_192 = {  # a width that is no power of 2
    "fp32": 192 * 4,
    "bf16": 192 * 2,
    "fp16": 192 * 2,
    "fp8": 192,
    "fp8_e4m3": 192,
    "fp8_e5m2": 192,
    "fp8_per_token_head": 192 + 4,
    "int8": 192 + 4,
    "int8_per_token_head": 192 + 4,
    "int4": 96 + 4,
    "int4_per_token_head": 96 + 4,
    "int2": 48 + 4,
    "int8_g32": 6 * 36,
    "int8_g64": 3 * 68,
    "int4_g32": 6 * 20,
    "int4_g64": 3 * 36,
    "int2_g32": 6 * 12,
    "int2_g64": 3 * 20,
    "nvfp4": 96 + 192 // 16,
    "q8_0": 6 * 34,
    "q5_1": 6 * 24,
    "q5_0": 6 * 22,
    "q4_1": 6 * 20,
    "q4_0": 6 * 18,
}


def test_every_type_takes_the_bytes_of_its_layout() -> None:
    assert {name: found.row(192) for name, found in DTYPES.items()} == ROWS_OF_192
    assert {name: found.bytes(7, 192) for name, found in DTYPES.items()} == {n: 7 * b for n, b in ROWS_OF_192.items()}


@pytest.mark.parametrize("name", DTYPES)
def test_an_element_takes_its_share_of_a_row_but_for_scales_of_a_row(name: str) -> None:
    found = DTYPES[name]
    scale = found.scale if not found.block else 0
    assert found.per_element * 192 == ROWS_OF_192[name] - scale
    assert isinstance(found.per_element, Fraction)


def test_a_row_of_half_a_byte_is_filled_up_and_an_empty_one_takes_nothing() -> None:
    assert dtype("int4").row(5) == 3 + 4
    assert [found.row(0) for found in DTYPES.values()] == [0] * len(DTYPES)


@pytest.mark.parametrize(("name", "width"), [("q8_0", 80), ("q4_0", 16), ("nvfp4", 24)])
def test_a_row_of_no_whole_blocks_is_refused(name: str, width: int) -> None:
    with pytest.raises(InputError, match=rf"`{name}` has blocks of \d+ elements and a row is {width} wide"):
        dtype(name).row(width)


def test_other_names_of_a_type_are_known_and_wrong_ones_refused_with_all_that_are() -> None:
    assert {dtype(alias).name for alias in ALIASES} == {"fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"}
    with pytest.raises(InputError, match="`--k-dtype` is 'fp6'; known: ") as refused:
        dtype("fp6", what="--k-dtype")
    assert all(f"`{name}`" in refused.value.problem for name in DTYPES)
