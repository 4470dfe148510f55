"""SmolLM2-135M: right in float32 and bfloat16, wrong in both with one planted fault; and with its tiny twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from fetch_smollm2 import weights
from kvtally.live.adapter import Adapter, of_transformers
from kvtally.live.check import check
from kvtally.live.twin import check_with_twin

CHEAP, TOKENS = ["prefill, then steps", "chunks of 3"], 8


@pytest.fixture(scope="module")
def smollm2() -> Any:
    file = weights()
    if file is None:
        pytest.skip("SmolLM2-135M is not there: run `python tests/fetch_smollm2.py`, or set KVTALLY_SMOLLM2")
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()


def one_off(model: Any) -> Adapter:
    """The model with a planted fault: every token after the first call stands one position too far."""
    healthy = of_transformers(model)

    def extend(held: Any, ids: Any, **given: Any) -> Any:
        places = torch.arange(held.past + 1, held.past + 1 + ids.shape[1]).expand(ids.shape)
        return healthy.extend(held, ids, **(({"positions": places} if held.past else {}) | given))

    return replace(healthy, extend=extend)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_weights_are_right_and_one_position_off_is_not(smollm2: Any, dtype: str) -> None:
    smollm2.to(getattr(torch, dtype))
    healthy = check(smollm2, scenarios=CHEAP, tokens=TOKENS)
    assert healthy.by_group()["steps"] in ("same", "rounding"), healthy.sentence  # bits of 16 can be equal
    assert healthy.good
    sick = check(one_off(smollm2), scenarios=CHEAP[:1], tokens=TOKENS)
    assert sick.by_group()["steps"] == "DEFECT"


def test_the_tiny_twin_runs_every_scenario_and_both_are_reported(smollm2: Any) -> None:
    smollm2.to(torch.float32)
    report = check_with_twin(smollm2, cheap=CHEAP[1:])
    assert report.good, report.sentence
    ran = {a.scenario.rpartition(" (")[2] for a in report.agreements}
    assert ran == {"tiny twin)", "real weights)"}
    twin_groups = {a.group for a in report.agreements if a.scenario.endswith("(tiny twin)")}
    assert twin_groups >= {"steps", "static", "padding", "edit", "batch", "reuse"}
