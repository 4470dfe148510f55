"""SmolLM2-135M on a text of our own: nothing rounded is nothing changed, and fewer bits change more."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from fetch_smollm2 import weights
from kvtally.core.rounded import Rounded
from kvtally.live.rounding import round_caches
from kvtally.live.rounding_cache import kept
from kvtally.live.text_ids import text_ids

TEXT = Path(__file__).parents[2] / "data" / "lighthouse.txt"
TOKENS = 96  # of the first; all of them are in docs/round.md
WAYS = {
    "float32": kept("float32"),
    "int8": kept("int8"),
    "int4": kept("int4"),
    "int2": kept("int2"),
    "by token": kept(k_dtype="int4", group=32, residual=32),
    "by channel": kept(k_dtype="int4", group=32, axis="channel"),
}


@pytest.fixture(scope="module")
def file() -> Path:
    found = weights()
    if found is None:
        pytest.skip("SmolLM2-135M is not there: run `python tests/fetch_smollm2.py`, or set KVTALLY_SMOLLM2")
    return found


@pytest.fixture(scope="module")
def ids(file: Path) -> Any:
    return text_ids(str(file), TEXT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found(file: Path, ids: Any) -> dict[str, Rounded]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    return dict(zip(WAYS, round_caches(model, ids[:, :TOKENS], list(WAYS.values())), strict=True))


def test_the_text_has_more_than_a_thousand_tokens(ids: Any) -> None:
    assert ids.shape[1] == 1286


def test_exact_rounding_changes_nothing(found: dict[str, Rounded]) -> None:
    same = found["float32"]
    assert same.agreement.verdict == "same" and same.within
    assert {s.max_abs for s in same.agreement.steps} == {0.0} and same.mean_abs == same.kl_99_9 == 0
    assert {s.error for s in same.stored} == {0.0} and len(same.stored) == 2 * 30
    assert same.perplexity == same.perplexity_exact and same.top1 == 1 and same.changed is None
    assert 10 < same.perplexity_exact < 80  # a language model reading English, not noise


def test_fewer_bits_change_more(found: dict[str, Rounded]) -> None:
    order = [found[name] for name in ("int8", "int4", "int2")]
    for better, worse in pairwise(order):
        assert not better.within and better.agreement.error < worse.agreement.error
        assert 3 * better.kl_mean < worse.kl_mean and better.top1 >= worse.top1
        assert all(better.part(part) < worse.part(part) for part in "kv")
    # 3 heads of 64, K and V, 30 layers: 8, 4 and 2 bits with 4 bytes a row
    rows = 2 * 3 * 30
    assert [r.bytes_kept for r in order] == [TOKENS * rows * n for n in (68, 36, 20)]


def test_k_by_channel_is_better_than_by_token_where_channels_stand_out(found: dict[str, Rounded]) -> None:
    by_token, by_channel = found["by token"], found["by channel"]
    assert by_token.bytes_kept == by_channel.bytes_kept
    assert by_channel.part("k") < by_token.part("k") and by_channel.kl_mean < by_token.kl_mean
    assert by_token.channels[0].times > 10
    # a query reads the tokens of its own block exactly: of the first block all, in both
    first = [[s.max_abs for s in r.agreement.steps[:32]] for r in (by_token, by_channel)]
    assert max(map(max, first)) < 1e-3 < min(max(s.max_abs for s in r.agreement.steps) for r in (by_token, by_channel))
