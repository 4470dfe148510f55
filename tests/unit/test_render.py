"""Answers as text: numbers, sizes, ratios, groups of terms, colour, width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally import Attention, Decoder, Experts, LatentAttention, Layer, Mlp, Term, lesson
from kvtally.frontends import render
from kvtally.frontends.models import kinds
from kvtally.frontends.question import Question, answer
from kvtally.frontends.table import PER_PAIR, PER_TOKEN, sections


def small(**layer: object) -> Decoder:
    mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=6)
    return Decoder(hidden_size=10, vocab_size=13, layers=(Layer(**{"mixer": mixer, "mlp": Mlp(width=9)} | layer),) * 3)


def test_every_term_is_in_exactly_one_group() -> None:
    grouped = [term for groups in (PER_TOKEN, PER_PAIR) for terms in groups.values() for term in terms]
    assert sorted(grouped) == sorted(Term)


@given(st.integers(0, 10**30))
def test_a_number_is_exact_where_it_fits_and_right_to_four_digits_where_not(n: int) -> None:
    text = render.number(n, 15)
    assert len(text) <= 15
    if len(f"{n:,}") <= 15:
        assert int(text.replace(",", "")) == n
    else:
        value, prefix = text.split()
        # half a unit of the fourth digit, relative to a number of at least 1,000 such units
        assert abs(float(value.replace(",", "")) * 1000 ** render.PREFIXES.index(prefix) - n) <= 0.0006 * n


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (25_600, "25.0 KiB"), (335_413_248, "319.9 MiB"),
     (2**70, "1,024.0 EiB")],
)  # fmt: skip
def test_sizes_are_binary(n: int, text: str) -> None:
    assert render.size(n) == text


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [(5, 5, "same"), (0, 0, "same"), (0, 7, ""), (7, 0, ""), (3, 4, "0.75×"), (505, 10, "50.5×"),
     (2_068_800, 1000, "2,069×")],
)  # fmt: skip
def test_ratios(left: int, right: int, text: str) -> None:
    assert render.ratio(left, right) == text


@pytest.mark.parametrize("by", [None, "layer", "phase", "term"])
def test_the_rows_of_every_axis_add_up_to_the_total(by: str | None) -> None:
    asked = answer(Question(decoder=small(), prompt=5, new=4))
    parts = sections(asked, by)
    work = [
        row.left
        for part in parts
        for row in part.rows
        if row.label.startswith("multiplications") or by in ("term", "layer")
        if part.title != "all multiplications" and not part.title.startswith("what it costs")
    ]
    times = 3 if by == "layer" else 1  # three layers alike stand in one row, each
    assert by != "layer" or [row.label for row in parts[0].rows] == ["layers 0 to 2, each", "outside the layers"]
    rows = [work[0] * times, *work[1:]]
    (total,) = [row.left for part in parts for row in part.rows if row.label == "total"]
    assert sum(rows) == total == asked.left.tally.total


def test_layers_that_differ_stand_apart() -> None:
    full, slides = (Attention(num_heads=4, num_kv_heads=2, head_dim=6, window=w) for w in (None, 3))
    layers = tuple(Layer(mixer=m) for m in (slides, slides, full, slides))
    decoder = Decoder(hidden_size=10, vocab_size=13, layers=layers)
    rows = sections(answer(Question(decoder=decoder, prompt=5, new=4)), "layer")[0].rows
    assert [r.label for r in rows] == ["layers 0 to 1, each", "layer 2", "layer 3", "outside the layers"]


def test_what_the_lesson_saves_is_apart_from_what_still_grows() -> None:
    saves, grows, *_ = sections(answer(Question(decoder=lesson(), prompt=1, new=100, loop="lesson")))
    assert saves.title == "what the cache saves" and all(row.left > row.right for row in saves.rows)
    assert grows.title == "what still grows with every token" and all(row.left == row.right for row in grows.rows)


def test_a_batch_and_the_uncached_loop_and_the_kernel_are_named() -> None:
    said = " ".join(render.conditions(Question(decoder=small(), prompt=5, new=4, batch=3, kernel="dense")))
    assert "batch 3" in said and "the forward loop" in said and "comparisons: dense" in said


def test_colour_changes_nothing_but_colour() -> None:
    asked = answer(Question(decoder=lesson(), prompt=1, new=100, loop="lesson"))
    plain, painted = (render.text(asked, None, by=None, on=on, columns=80) for on in (False, True))
    assert "\x1b[" in painted
    bare = painted
    for code in ("1", "2", "32", "33", "36", "1;32", "1;33", "1;36", "0"):
        bare = bare.replace(f"\x1b[{code}m", "")
    assert bare == plain


def test_numbers_are_exact_where_the_terminal_is_wide_enough_and_units_explained_where_not() -> None:
    asked = answer(Question(decoder=small(), prompt=10**6, new=10**3))
    exact = f"{asked.left.tally.total:,}"
    assert exact in render.text(asked, None, by=None, on=False, columns=120)
    narrow = render.text(asked, None, by=None, on=False, columns=70)
    assert exact not in narrow and "exact: --format json" in " ".join(narrow.split())


def test_kinds_of_layers_are_told_by_what_they_hold() -> None:
    latent = LatentAttention(num_heads=2, kv_lora_rank=6, qk_rope_head_dim=2, qk_nope_head_dim=4, v_head_dim=3)
    assert kinds(small(mixer=latent, mlp=Experts(num_experts=4, per_token=2, width=5))) == "3 latent, MoE"
    window = Attention(num_heads=4, num_kv_heads=2, head_dim=6, window=7)
    assert kinds(small(mixer=window)) == "3 window 7"
