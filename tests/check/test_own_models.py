"""Decoders that are not of transformers: joined by a few functions, healthy as `rounding`, sick as DEFECT."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import torch

from check.numpy_decoder import NumpyDecoder
from check.own_models import by_hand, in_numpy
from handwritten import Net
from kvtally.live.adapter import Adapter
from kvtally.live.check import check
from kvtally.live.scenarios import Bench
from kvtally.live.zoo import scaled


def net() -> Net:
    torch.manual_seed(0)
    return scaled(Net())


def test_a_hand_written_pytorch_model_passes_what_it_can_do() -> None:
    groups = check(by_hand(net())).by_group()
    assert {group for group, verdict in groups.items() if verdict in ("same", "rounding")} >= {"power", "steps", "edit"}
    assert "DEFECT" not in groups.values()


def test_its_crop_that_takes_one_token_too_many_is_found_in_edit_alone() -> None:
    groups = check(by_hand(net(), crop_extra=1)).by_group()
    assert groups["edit"] == "DEFECT"
    assert groups["steps"] == "rounding"


def test_a_decoder_in_numpy_passes() -> None:
    report = check(in_numpy(NumpyDecoder()))
    report.raise_if_defect()
    assert report.by_group()["steps"] in ("same", "rounding")


def test_positions_that_start_again_are_found_in_numpy_too() -> None:
    report = check(in_numpy(NumpyDecoder(restarts=True)))
    assert report.by_group()["steps"] == "DEFECT"
    assert report.by_group()["power"] in ("same", "rounding")


@pytest.mark.parametrize(("tokens", "vocab_size"), [(24, 131), (24, 24), (24, 5)])
def test_a_prompt_repeats_no_token_as_long_as_the_vocabulary_reaches(tokens: int, vocab_size: int) -> None:
    adapter = Adapter(full=lambda ids: ids, extend=lambda cache, ids: ids, fresh=dict, vocab_size=vocab_size)
    for which in range(3):
        prompt = Bench(adapter=adapter, tokens=tokens).prompt(which)
        assert prompt.shape == (1, tokens)
        assert len(prompt[0].unique()) == min(tokens, vocab_size)
