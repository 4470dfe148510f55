"""Spans by hand: what each query sees, what must be held, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvtally import InputError, Pass, Span

DRAWN = [  # which of 8 keys the queries 0, 2, 3 and 7 see
    (Span(), ("x.......", "xxx.....", "xxxx....", "xxxxxxxx")),
    (Span(window=3), ("x.......", "xxx.....", ".xxx....", ".....xxx")),
    (Span(chunk=3), ("x.......", "xxx.....", "...x....", "......xx")),
    (Span(top_k=2), ("x.......", ".xx.....", "..xx....", "......xx")),
    (Span(top_k=2, block=3), ("x.......", "xxx.....", "xxxx....", "...xxxxx")),
]


@pytest.mark.parametrize(("span", "rows"), DRAWN)
def test_what_a_query_sees(span: Span, rows: tuple[str, ...]) -> None:
    seen = tuple("".join(".x"[span.sees(query, key)] for key in range(8)) for query in (0, 2, 3, 7))
    assert seen == rows


@pytest.mark.parametrize(
    ("span", "held", "reach", "limit", "seen"),
    [
        (Span(), (3, 4, 50), (3, 4, 50), None, None),
        (Span(window=4), (3, 4, 4), (3, 3, 3), 4, 4),
        (Span(chunk=4), (3, 4, 4), (3, 3, 3), 4, None),
        (Span(top_k=2, block=3), (3, 4, 50), (3, 4, 50), None, 6),
    ],
)
def test_what_is_held_and_reached(
    span: Span, held: tuple[int, ...], reach: tuple[int, ...], limit: int | None, seen: int | None
) -> None:
    assert tuple(map(span.held, (3, 4, 50))) == held
    assert tuple(map(span.reach, (3, 4, 50))) == reach
    assert (span.limit, span.seen) == (limit, seen)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"window": 0}, "`window` is 0, expected an integer of at least 1"),
        ({"chunk": 0}, "`chunk` is 0, expected an integer of at least 1"),
        ({"top_k": 0}, "`top_k` is 0, expected an integer of at least 1"),
        ({"window": 2, "chunk": 3}, "`window` is 2 and `chunk` is 3, expected one of them"),
        ({"chunk": 3, "top_k": 1}, "`chunk` is 3 and `top_k` is 1, expected one of them"),
        ({"block": 2}, "`block` is 2, expected an integer of at least 1 and at most 1"),
        ({"top_k": 2, "block": 0}, "`block` is 0, expected an integer of at least 1"),
    ],
)
def test_a_span_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        Span(**fields)
    assert str(raised.value) == said


def test_a_kernel_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        Span().pairs(Pass(new=2), "flash")
    assert str(raised.value) == "`kernel` is 'flash'; known: `causal`, `dense`"
