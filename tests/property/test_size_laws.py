"""Laws of sizes: bytes are elements, parts are the whole, more needs more, and what fits is tight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import DTYPES
from kvtally.core.passes import LONGEST, Pass
from kvtally.pure.count_closed import count
from kvtally.pure.roofline import loads, whole
from kvtally.pure.size import cache_types, fits, held_bytes, longest, size
from kvtally.pure.size_terms import products
from strategies import decoders, pass_lists

lengths = st.integers(0, 40)
batches = st.integers(1, 5)


@given(decoders(), lengths, batches)
def test_bytes_held_are_the_elements_held_in_their_types(decoder: Decoder, tokens: int, batch: int) -> None:
    held = size(decoder, tokens, batch=batch, dtype="fp32")
    assert held.bytes_held == 4 * batch * decoder.held(tokens)


@given(decoders(), lengths, batches, st.sampled_from(["bf16", "fp8_per_token_head", "int4", "fp32"]))
def test_three_ways_to_the_same_bytes(decoder: Decoder, tokens: int, batch: int, name: str) -> None:
    held = size(decoder, tokens, batch=batch, dtype=name)
    types = cache_types(name)
    assert held.bytes_held == held_bytes(decoder, types)(tokens, batch)
    assert held.bytes_held == batch * sum(line.bytes for line in products(decoder, tokens, types=types))
    assert held.bytes_held == sum(held.by("part").values())


@given(decoders(), lengths, batches)
def test_a_token_more_or_a_request_more_never_needs_less(decoder: Decoder, tokens: int, batch: int) -> None:
    needed = held_bytes(decoder, cache_types())
    assert needed(tokens, batch) <= needed(tokens + 1, batch)
    assert needed(tokens, batch + 1) == needed(tokens, batch) + needed(tokens, 1)


@given(decoders(), st.integers(1, 40), st.integers(0, 10**5))
def test_requests_that_fit_are_tight(decoder: Decoder, tokens: int, memory: int) -> None:
    needed = held_bytes(decoder, cache_types())
    many = fits(needed, memory, tokens)
    assert many == 0 or needed(tokens, many) <= memory
    assert many == LONGEST or needed(tokens, many + 1) > memory
    assert fits(needed, memory + 1, tokens) >= many
    assert fits(needed, memory, tokens + 1) <= many


@given(decoders(), batches, st.integers(0, 10**5))
def test_the_longest_context_is_tight(decoder: Decoder, batch: int, memory: int) -> None:
    needed = held_bytes(decoder, cache_types())
    tokens = longest(needed, memory, batch)
    assert tokens == 0 or needed(tokens, batch) <= memory
    assert tokens == LONGEST or needed(tokens + 1, batch) > memory
    assert longest(needed, memory + 1, batch) >= tokens
    assert longest(needed, memory, batch + 1) <= tokens


@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(0, 99), st.integers(0, 10**13))
def test_what_fits_does_not_depend_on_where_the_search_starts(memory: int, each: int, rest: int, near: int) -> None:
    def stairs(tokens: int, batch: int) -> int:  # grows by 7 requests or tokens at a time, as pages do
        return each * -(-tokens * batch // 7) * 7 + rest

    assert fits(stairs, memory, 1, near=near) == fits(stairs, memory, 1)
    assert longest(stairs, memory, near=near) == longest(stairs, memory)
    found = longest(stairs, memory, near=near)
    assert stairs(found + 1, 1) > memory
    assert found == 0 or stairs(found, 1) <= memory


@given(decoders(), pass_lists(), batches)
def test_a_roofline_is_of_the_multiplications_counted(decoder: Decoder, passes: tuple[Pass, ...], batch: int) -> None:
    """Twice as many FLOPs; of a single sequence, no matrix (bf16: two bytes for two FLOPs) is read for nothing."""
    for p in {one for several in passes for one in several.each()}:
        assert whole(loads(decoder, p, batch=batch)).flops == batch * count(decoder, [p]).flops
        assert all(load.weights <= load.flops for load in loads(decoder, p))


@given(st.sampled_from(sorted(DTYPES)), st.integers(0, 20), st.integers(1, 9))
def test_rows_take_whole_bytes_and_as_many_as_there_are(name: str, blocks: int, rows: int) -> None:
    found, width = DTYPES[name], 64 * blocks
    assert found.bytes(rows, width) == sum(found.row(width) for _ in range(rows))
    assert 8 * found.row(width) >= found.bits * width
