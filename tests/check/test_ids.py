"""Token ids of one's own, for `check` and `round_cache`: one text of known tokens, or a sentence that says why not."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from kvtally.core.errors import InputError
from kvtally.live import check, round_cache
from kvtally.live.checked_model import load


@cache
def gpt2() -> Any:
    """Of 131 tokens."""
    return load("gpt2").model


def test_ids_of_ones_own_are_taken() -> None:
    found = check(gpt2(), [[5, 7, 9, 11, 2, 4, 6, 8, 3, 1]], scenarios="steps")
    assert found.conventions["tokens"] == 10
    assert found.verdict == "rounding"


@pytest.mark.parametrize("verb", [check, partial(round_cache, dtype="bf16")], ids=["check", "round_cache"])
@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([[1] * 9, [2] * 9], "`ids` has the shape (2, 9) and the type torch.int64, expected "),
        ([[[1] * 9]], "`ids` has the shape (1, 1, 9) and"),
        ([1], "`ids` has the shape (1,) and"),
        ([], "`ids` has the shape (0,) and the type torch.float32, expected "),
        (3, "`ids` has the shape () and"),
        ([1.0] * 9, "and the type torch.float32, expected "),
        ([True] * 9, "and the type torch.bool, expected "),
        ("hello", "`ids` is 'hello', expected "),
        ([[1, 2], [3]], "`ids` is [[1, 2], [3]], expected "),
        ([2**80] * 9, "`ids` is [1208925819614629174706176, "),
        ([131] * 9, "`ids` reach from 131 to 131, expected 0 to 130"),
        ([*range(9), -1], "`ids` reach from -1 to 8, expected 0 to 130"),
    ],
)
def test_what_are_no_token_ids_of_one_text_is_refused(verb: Any, ids: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        verb(gpt2(), ids)
    assert said in str(caught.value)


def test_a_row_of_ids_and_a_list_are_the_same_text() -> None:
    ids = [5, 7, 9, 11, 2, 4, 6, 8, 3, 1]
    one, other = (check(gpt2(), given, scenarios="power") for given in (ids, torch.tensor([ids], dtype=torch.uint8)))
    assert one == other
