"""What makes a row good, and what transformers keeps that a decoder does not need, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("transformers")

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Difference, Term
from kvtally.live.harness import build, convention, steps
from kvtally.live.zoo import LISTS, held, scaled, traced, visit
from kvtally.live.zoo_row import GOOD, Outcome, Row, bad, kept, unseen
from kvtally.live.zoo_shrink import shrunk
from kvtally.pure.config import read_config

SLIDING = Attention(num_heads=4, num_kv_heads=2, head_dim=3, window=5)
CONV = Recurrent(
    matrices=((Term.in_proj, None, 7),), conv_channels=7, conv_kernel=4, num_heads=2, key_dim=3, value_dim=5
)
CROSS = CrossAttention(num_heads=2, num_kv_heads=2, head_dim=4, source=6)


def decoder(*layers: Layer) -> Decoder:
    return Decoder(hidden_size=10, vocab_size=11, layers=layers)


def test_a_full_window_keeps_one_token_less_and_a_convolution_one_tap_more() -> None:
    two = decoder(Layer(mixer=SLIDING), Layer(mixer=CONV))
    assert kept(two, 4) == [(4 * 2 * 6, ""), (4 * 7 + 2 * 3 * 5, "k taps")]
    assert kept(two, 9)[0] == (4 * 2 * 6, "window - 1")


def test_attention_to_an_encoder_keeps_all_of_it() -> None:
    assert kept(decoder(Layer(mixer=replace(SLIDING, window=None), cross=CROSS)), 3) == [(3 * 12 + 6 * 16, "")]


def test_only_cells_that_tracing_cannot_see_are_set_aside() -> None:
    cells = [
        Difference(table="macs", cell=("prefill", 0, Term.state_update), left=5, right=0),
        Difference(table="macs", cell=("prefill", 0, Term.state_update), left=5, right=4),
        Difference(table="macs", cell=("prefill", 0, Term.q_proj), left=5, right=0),
        Difference(table="states", cell=(), left=5, right=0),
    ]
    seen, missed = unseen(cells)
    assert seen == cells[1:]
    assert missed == {"state_update": 1}


def test_a_row_is_wrong_where_something_said_is_not_so() -> None:
    good = Row(name="a", built=GOOD, ran=GOOD, read=GOOD, held=GOOD, traced=GOOD)
    no = Outcome(ok=False, note="why")
    assert not good.wrong
    assert all(replace(good, **{name: no}).wrong for name in ("ran", "held", "traced"))
    assert not replace(good, ran=no, read=no, held=Outcome(), traced=Outcome()).wrong
    assert Row.from_dict(good.to_dict()) == good
    assert bad(KeyError("x")).note == "KeyError: 'x'"


@pytest.fixture(scope="module")
def gemma() -> tuple[Any, Decoder]:
    model = scaled(build(shrunk("gemma2"), device="cpu"))
    return model, read_config(model.config.to_dict())


def test_a_decoder_that_is_wrong_in_one_layer_is_found_in_that_layer(gemma: tuple[Any, Decoder]) -> None:
    model, right = gemma
    mixer = right.layers[1].mixer
    assert isinstance(mixer, Attention)
    layer = replace(right.layers[1], mixer=replace(mixer, num_kv_heads=1))
    wrong = replace(right, layers=(right.layers[0], layer, *right.layers[2:]))
    calls = convention(model)
    cache = None
    for step in steps(calls, LISTS["cached"]):
        step.run()
        cache = step.cache
    assert held(cache, right, 1, {}).ok
    found = held(cache, wrong, 1, {})
    assert found.ok is False
    assert found.note.startswith("layer 1: ")
    assert ";" not in found.note
    row = traced(Row(name="gemma2"), model, wrong, ["cached"])
    assert row.traced.ok is False
    assert "cached macs[prefill, 1, k_proj]" in row.traced.note
    assert traced(Row(name="gemma2"), model, right, ["cached"]).traced.ok


def test_what_is_refused_is_a_row_with_the_reason() -> None:
    row = visit("xlnet")
    assert row.built.ok
    assert row.read.ok is False
    assert "attn_type" in row.read.note
    assert not row.wrong


def test_a_model_without_a_cache_is_compared_over_passes_that_keep_nothing() -> None:
    row = visit("openai-gpt")
    assert row.ran == Outcome(ok=True, note="takes no cache")
    assert row.held == Outcome()
    assert row.traced.ok
    assert row.cells > 50


def test_tokens_that_a_model_puts_before_the_prompt_are_part_of_it() -> None:
    row = visit("cpmant")
    assert row.held.ok, row.held
    assert row.traced.ok, row.traced
