"""Recurrent and hybrid models, tiny and real: closed = traced, held = cache, and what a trace cannot see is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kvtally.core.passes import cached
from kvtally.core.tally import Tally, Term, compare
from kvtally.live.count_traced import trace
from kvtally.live.harness import as_run, build
from kvtally.live.own_caches import layers_of, own_cache, states_on_modules
from kvtally.live.zoo import visit
from kvtally.live.zoo_row import Row, unseen
from kvtally.live.zoo_shrink import shrunk
from kvtally.pure.config import read_config
from kvtally.pure.count_closed import count

CONFIGS = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[4] / "shared")) / "facts" / "configs"
REAL = (
    "moonshotai--Kimi-Linear-48B-A3B-Instruct",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "Qwen--Qwen3-Next-80B-A3B-Instruct",
)

# One of each way: Mamba, Mamba-2 without an MLP, both mixers in a layer, shared blocks, delta rules, lightning
# attention, short convolutions, element-wise states, caches of a model's own, loops, an indexer beside a recurrence.
KINDS = (
    "mamba",
    "nemotron_h",
    "falcon_h1",
    "zamba2",
    "qwen3_next",
    "kimi_linear",
    "minimax",
    "lfm3",
    "recurrent_gemma",
    "rwkv",
    "xlstm",
    "hrm_text",
    "inkling2_text",
    "qwen4_exp_text",
)


@pytest.mark.parametrize("name", KINDS)
def test_a_tiny_model_costs_and_holds_what_its_config_says(name: str) -> None:
    row = visit(name)
    assert all(outcome.ok for outcome in row.outcomes.values()), row
    assert set(row.unseen) <= {"state", "state_update", "state_read", "conv1d"}


def test_zaya_projects_a_row_of_zeros_where_there_is_no_token_before() -> None:
    row: Row = visit("zaya")
    assert row.held.ok
    assert not row.traced.ok
    assert "v_proj" in row.traced.note


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="KVTALLY_SHARED has no facts/configs")
@pytest.mark.parametrize("name", REAL)
def test_real_sizes_on_the_meta_device(name: str) -> None:
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    decoder, model, passes = read_config(config), build(config), cached(37, 3)
    comparison = compare(count(decoder, as_run(model, passes), kernel="dense"), trace(model, passes, decoder))
    differences, missed = unseen(comparison.differences)
    assert comparison.cells > 500
    assert differences == []
    assert set(missed) == {"state", "state_update", "state_read"}


def traced(name: str) -> tuple[Tally, Tally]:
    config = shrunk(name)
    model, passes = build(config, device="cpu"), cached(13, 4)
    decoder = read_config(model.config.to_dict())
    return count(decoder, passes, kernel="dense"), trace(model, passes, decoder)


def test_positions_beyond_the_new_tokens_are_listed_not_counted() -> None:
    closed, seen = traced("lfm3")
    cell = ("prefill", 0, Term.conv1d)
    assert closed.macs[cell] == seen.macs[cell] == 13 * 96 * 7
    # (13 + 6 padded) - 13 rows in the prefill, and one row of two in each of three steps.
    extra = (6 + 3) * 96 * 7
    assert any("positions beyond the new tokens" in line and f"{extra:,} MACs" in line for line in seen.uncounted)


def test_products_of_a_chunked_scan_are_listed_with_their_module() -> None:
    closed, seen = traced("qwen3_next")
    lines = [line for line in seen.uncounted if "linear_attn: " in line]
    assert any("bmm" in line for line in lines)
    assert any("linalg_solve_triangular" in line for line in lines)
    assert ("prefill", 0, Term.state_update) in closed.macs
    assert ("prefill", 0, Term.state_update) not in seen.macs


def test_states_are_found_wherever_a_model_keeps_them() -> None:
    rwkv = build(shrunk("rwkv"), device="cpu")
    fresh = own_cache(rwkv)
    assert fresh is not None
    assert [len(states) for states in layers_of(fresh())] == [5] * rwkv.config.num_hidden_layers
    llama = build(shrunk("llama"), device="cpu")
    assert own_cache(llama) is None
    assert states_on_modules(llama) == {}
