"""How many bytes an element takes: each type against its layout, written out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvtally.core.dtype import ALIASES, DTYPES, dtype
from kvtally.core.errors import InputError

ROWS_OF_96 = {  # a width that is no power of 2
    "fp32": 96 * 4,
    "bf16": 96 * 2,
    "fp16": 96 * 2,
    "fp8": 96,
    "fp8_e4m3": 96,
    "fp8_e5m2": 96,
    "fp8_per_token_head": 96 + 4,
    "int8": 96,
    "int8_per_token_head": 96 + 4,
    "int4": 48,
    "int4_per_token_head": 48 + 4,
    "nvfp4": 48 + 96 // 16,
    "q8_0": 3 * 34,
    "q5_1": 3 * 24,
    "q5_0": 3 * 22,
    "q4_1": 3 * 20,
    "q4_0": 3 * 18,
}


def test_every_type_takes_the_bytes_of_its_layout() -> None:
    assert {name: found.row(96) for name, found in DTYPES.items()} == ROWS_OF_96
    assert {name: found.bytes(7, 96) for name, found in DTYPES.items()} == {n: 7 * b for n, b in ROWS_OF_96.items()}


@pytest.mark.parametrize("name", DTYPES)
def test_an_element_takes_its_share_of_a_row_but_for_scales_of_a_row(name: str) -> None:
    found = DTYPES[name]
    scale = found.scale if not found.block else 0
    assert found.per_element * 96 == ROWS_OF_96[name] - scale
    assert isinstance(found.per_element, Fraction)


def test_a_row_of_half_a_byte_is_filled_up_and_an_empty_one_takes_nothing() -> None:
    assert dtype("int4").row(5) == 3
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
