"""Classic mistakes, planted in a copy of a count, are named by `compare` in the right cells."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvtally import (
    Attention,
    Decoder,
    InputError,
    Layer,
    Mlp,
    Pass,
    Tally,
    Term,
    cached,
    compare,
    count,
)

PROMPT, NEW, WINDOW = 9, 6, 4
FULL = Attention(num_heads=6, num_kv_heads=2, head_dim=5, v_head_dim=3)
DECODER = Decoder(
    hidden_size=7,
    vocab_size=13,
    layers=(
        Layer(mixer=FULL, mlp=Mlp(width=11)),
        Layer(mixer=replace(FULL, window=WINDOW), mlp=Mlp(width=11)),
    ),
)
RIGHT = count(DECODER, cached(PROMPT, NEW))


def named(wrong: Tally) -> set[tuple[str, ...]]:
    """What `compare` names: (table, phase, layer, term or cell) of every difference."""
    return {(d.table, *map(str, d.cell)) for d in compare(RIGHT, wrong).differences}


def remade(change: dict[str, int]) -> Decoder:
    """The decoder, a field of every mixer changed."""
    return replace(DECODER, layers=tuple(replace(x, mixer=replace(x.mixer, **change)) for x in DECODER.layers))


def test_equal_counts_agree_in_every_cell() -> None:
    comparison = compare(RIGHT, count(DECODER, cached(PROMPT, NEW)))
    assert comparison.agree
    assert comparison.cells == 1 + len(RIGHT.macs) + len(RIGHT.kv) + len(RIGHT.comparisons)
    assert str(comparison) == f"agree: {comparison.cells} cells, closed = closed"


def test_one_decode_step_too_many() -> None:
    prefill, decode = cached(PROMPT, NEW)
    wrong = named(count(DECODER, [prefill, replace(decode, times=NEW)]))
    assert {cell[1] for cell in wrong if cell[0] != "states"} == {"decode"}
    assert ("states",) in wrong
    assert {cell[3] for cell in wrong if cell[0] == "macs"} == {str(t) for t in RIGHT.by("term")}


def test_grouping_ignored() -> None:
    wrong = named(count(remade({"num_kv_heads": 6}), cached(PROMPT, NEW)))
    assert {cell[3] for cell in wrong} == {"k_proj", "v_proj", "k_write", "v_write", "k_read", "v_read"}
    assert {cell[2] for cell in wrong} == {"0", "1"}


def test_window_off_by_one() -> None:
    windowed = replace(DECODER.layers[1], mixer=replace(FULL, window=WINDOW + 1))
    wrong = named(count(replace(DECODER, layers=(DECODER.layers[0], windowed)), cached(PROMPT, NEW)))
    assert {cell[2] for cell in wrong} == {"1"}
    assert {cell[3] for cell in wrong if len(cell) > 3} == {"qk", "pv", "k_read", "v_read"}


def test_past_forgotten() -> None:
    prefill, decode = cached(PROMPT, NEW)
    wrong = named(count(DECODER, [prefill, replace(decode, past=0)]))
    assert {cell[1] for cell in wrong} == {"decode"}
    assert {cell[3] for cell in wrong if len(cell) > 3} == {"qk", "pv", "k_read", "v_read"}


def test_keys_and_values_of_old_tokens_projected_again() -> None:
    macs = dict(RIGHT.macs)
    for step in range(NEW - 1):
        for layer in (0, 1):
            for term, width in ((Term.k_proj, 2 * 5), (Term.v_proj, 2 * 3)):
                macs["decode", layer, term] += 7 * width * (PROMPT + step)
    wrong = named(replace(RIGHT, macs=macs))
    assert wrong == {("macs", "decode", str(i), term) for i in (0, 1) for term in ("k_proj", "v_proj")}


def test_a_difference_reads_as_a_sentence() -> None:
    prefill, _ = cached(PROMPT, NEW)
    text = str(compare(RIGHT, count(DECODER, [prefill])))
    assert "macs[decode, 0, q_proj]: 1,050 against 0 (-1,050)" in text  # 7 * 6 * 5 MACs a token, 5 tokens
    assert "macs[decode, outside layers, lm_head]: 455 against 0 (-455)" in text  # 7 * 13 a row, 5 rows


def test_other_kernels_are_not_compared() -> None:
    with pytest.raises(InputError, match="one tally counts `causal` pairs and the other `dense`"):
        compare(RIGHT, count(DECODER, cached(PROMPT, NEW), kernel="dense"))


def test_a_batch_is_a_sum_of_tallies() -> None:
    assert compare(3 * RIGHT, RIGHT + RIGHT + RIGHT).agree


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"new": 0}, "`new` is 0, expected an integer of at least 1 and at most 1,000,000,000,000"),
        ({"new": True}, "`new` is True, expected an integer of at least 1"),
        ({"new": 2, "past": -1}, "`past` is -1, expected an integer of at least 0"),
        ({"new": 2, "logits": 3}, "`logits` is 3, expected an integer of at least 0 and at most 2"),
        ({"new": 2, "attending": 3}, "`attending` is 3, expected an integer of at least 1 and at most 2"),
        ({"new": 2, "phase": "warmup"}, "`phase` is 'warmup'; known: `decode`, `prefill`"),
        ({"new": 10**12, "times": 2}, "`end` is 2,000,000,000,000, expected"),
        ({"new": 2, "attending": 1, "times": 2}, "`attending` is 1 over 2 passes that continue each other"),
    ],
)
def test_impossible_passes_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Pass(**wrong)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_cell_that_one_side_lacks_counts_as_0_there() -> None:
    cell = ("decode", 0, Term.q_proj)
    lacking, zero, one = (Tally(macs=macs, kernel="causal", road="closed") for macs in ({}, {cell: 0}, {cell: 1}))
    assert compare(lacking, zero).agree and compare(zero, lacking).agree
    for left, right, sides in ((lacking, one, (0, 1)), (one, lacking, (1, 0))):
        (found,) = compare(left, right).differences
        assert (found.table, found.cell, found.left, found.right) == ("macs", cell, *sides)


def test_the_record_of_a_comparison_is_json() -> None:
    one, two = (
        Tally(macs={("decode", None, Term.lm_head): n}, kernel="causal", road=r) for n, r in ((4, "a"), (8, "b"))
    )
    assert json.loads(json.dumps(compare(one, two).to_dict())) == {
        "agree": False,
        "cells": 2,
        "left": "a",
        "right": "b",
        "differences": [{"table": "macs", "cell": ["decode", None, "lm_head"], "left": 4, "right": 8}],
    }


def test_differences_come_by_phase_then_layers_then_what_is_outside_of_them() -> None:
    cells = [("prefill", 0, Term.q_proj), ("prefill", 0, Term.o_proj), ("prefill", 1, Term.q_proj)]
    cells += [("prefill", None, Term.lm_head), ("decode", 0, Term.q_proj), ("decode", None, Term.lm_head)]
    given = Tally(macs={c: 1 for c in reversed(cells)}, kernel="causal", road="closed")
    assert [d.cell for d in compare(given, Tally(kernel="causal", road="closed")).differences] == cells
