"""Closed sums of query-key pairs equal brute force over single positions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtally import Pass, Span
from kvtally.core.strided_span import StridedSpan

SPANS = st.one_of(
    st.just(Span()),
    st.integers(1, 9).map(lambda w: Span(window=w)),
    st.integers(1, 9).map(lambda c: Span(chunk=c)),
    st.tuples(st.integers(1, 5), st.integers(1, 4)).map(lambda k: Span(top_k=k[0], block=k[1])),
)


@st.composite
def passes(draw: st.DrawFn) -> Pass:
    new, past, times = draw(st.integers(1, 12)), draw(st.integers(0, 20)), draw(st.integers(1, 7))
    keep = draw(st.booleans())
    rows = draw(st.none() | st.integers(1, new)) if not keep or times == 1 else draw(st.sampled_from([None, new]))
    return Pass(new=new, past=past, keep=keep, times=times, attending=rows)


@given(span=SPANS, p=passes())
@settings(max_examples=500, deadline=None)
def test_causal_pairs_are_those_the_mask_allows(span: Span, p: Pass) -> None:
    seen = 0
    for one in p.each():
        first = one.past + one.new - (one.attending or one.new)
        seen += sum(span.sees(q, k) for q in range(first, one.past + one.new) for k in range(q + 1))
    assert span.pairs(p, "causal", p.attending) == seen


@given(span=SPANS, p=passes())
@settings(max_examples=500, deadline=None)
def test_dense_pairs_are_rectangles_over_what_is_held(span: Span, p: Pass) -> None:
    cells = 0
    for one in p.each():
        rows = one.attending or one.new
        first = one.past + one.new - rows
        cells += rows * (min(first, (span.limit or first + 1) - 1) + rows)
    assert span.pairs(p, "dense", p.attending) == cells


@given(span=SPANS, p=passes())
@settings(max_examples=300, deadline=None)
def test_reached_is_the_past_that_the_first_new_query_may_see(span: Span, p: Pass) -> None:
    limit = span.limit
    assert span.reached(p) == sum(one.past if limit is None else min(one.past, limit - 1) for one in p.each())


@given(p=passes())
@settings(max_examples=200, deadline=None)
def test_tokens_and_end_are_sums_over_single_passes(p: Pass) -> None:
    single = list(p.each())
    assert p.tokens == sum(one.new for one in single)
    assert p.end == single[-1].past + single[-1].new
    assert len(single) == p.times


STRIDED = st.builds(StridedSpan, stride=st.integers(1, 5), top_k=st.none() | st.integers(1, 4))


@given(span=STRIDED, p=passes())
@settings(max_examples=500, deadline=None)
def test_keys_of_several_tokens_against_brute_force(span: StridedSpan, p: Pass) -> None:
    causal = dense = reached = written = 0
    for one in p.each():
        rows, end = one.attending or one.new, one.past + one.new
        causal += sum(span.sees(q, key) for q in range(end - rows, end) for key in range(end))
        dense += rows * (end // span.stride)
        reached += one.past // span.stride
        written += sum((t + 1) % span.stride == 0 for t in range(one.past, end)) if p.keep else 0
    assert span.pairs(p, "causal", p.attending) == causal
    assert span.pairs(p, "dense", p.attending) == dense
    assert (span.reached(p), span.written(p)) == (reached, written)
