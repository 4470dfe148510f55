"""What hits are worth: equal to every request counted by itself with its own hit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally.core.decoder import Decoder
from kvtally.core.passes import Pass, prefix_hit
from kvtally.pure.catalogue import names
from kvtally.pure.count_closed import count
from kvtally.pure.model import read_model
from kvtally.pure.size import size
from kvtally.traffic.prices import block_bytes, prices
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import runs
from traffic import brute
from traffic.test_replay_traces import mooncake, pytestmark

needs_shared = pytestmark
SOURCE = {"t5-base": 37, "whisper-large-v3": 37}


def directly(decoder: Decoder, prompts: list[int], hits: list[int]) -> int:
    """Every prompt counted as the pass it is."""
    return sum(count(decoder, (Pass(new=n - h, past=h),)).total for n, h in zip(prompts, hits, strict=True))


@pytest.mark.parametrize("name", names())
def test_every_model_of_the_catalogue(name: str) -> None:
    """Windows, chunks, latents, shared layers, cross attention: a hit saves the same in every longer prompt."""
    decoder = read_model(name, source=SOURCE.get(name))
    paths = [[*range(5)], [0, 1, 300], [*range(300)], [*range(5)], [*range(299)]]
    requests = Requests.of(paths, block_size=16)
    table = runs(requests)
    for price in prices(decoder, table, [0, 2, 7, None]):
        tokens = table.tokens(table.hits(price.capacity)).tolist()
        prompts = requests.input_tokens.tolist()
        assert price.macs == directly(decoder, prompts, tokens)
        assert price.macs_uncached == directly(decoder, prompts, [0] * len(prompts))
        assert (price.states_uncached, price.states_saved) == (sum(prompts), sum(tokens))


@needs_shared
@pytest.mark.parametrize("trace", ["conversation", "synthetic"])
def test_mooncake_at_eight_capacities(trace: str) -> None:
    """12,031 and 3,993 prompts, each counted with its own hit; a decoder with a window and one layer without."""
    decoder = _small()
    table = runs(mooncake(trace))
    prompts = table.requests.input_tokens.tolist()
    work = cache(lambda new, past: count(decoder, (Pass(new=new, past=past),)).total)
    capacities = [0, 100, 439, 1_828, 5_000, 18_279, 91_395, None]
    for capacity, price in zip(capacities, prices(decoder, table, capacities), strict=True):
        tokens = table.tokens(table.hits(capacity)).tolist()
        assert price.macs == sum(work(n - h, h) for n, h in zip(prompts, tokens, strict=True))
        assert price.states == sum(prompts) - sum(tokens)


def _small() -> Decoder:
    gemma = read_model("gemma-3-1b")
    return Decoder(hidden_size=gemma.hidden_size, vocab_size=gemma.vocab_size, layers=gemma.layers[4:6])


def test_integers_that_no_machine_word_holds() -> None:
    decoder = read_model("llama-3.1-405b")
    requests = Requests.of([[*range(10_000)]] * 2, block_size=1000)
    price = prices(decoder, runs(requests), [None])[0]
    assert price.macs_uncached == 2 * count(decoder, (Pass(new=10_000_000),)).total > 2**63
    assert price.macs == price.macs_uncached // 2 + count(decoder, (Pass(new=1, past=9_999_999),)).total


@given(brute.streams(), st.integers(0, 9), st.integers(1, 5))
def test_decode_steps_cost_the_same_with_and_without(paths: brute.Paths, capacity: int, new: int) -> None:
    """So leaving them out of both changes no saving."""
    decoder = read_model("smollm2-135m")
    filled = [path for path in paths if path][:4]
    table = runs(Requests.of(filled, block_size=16))
    hits = table.tokens(table.hits(capacity)).tolist()
    prompts = table.requests.input_tokens.tolist()
    both = [
        sum(count(decoder, prefix_hit(n, h, new)).total for n, h in zip(prompts, past, strict=True))
        for past in ([0] * len(hits), hits)
    ]
    assert prices(decoder, table, [capacity])[0].macs_saved == both[0] - both[1]


def test_bytes_of_a_cache_are_those_of_its_blocks() -> None:
    decoder = read_model("llama-3.1-8b")
    assert block_bytes(decoder, 16, 1) == 32 * 2 * 8 * 128 * 2 * 16  # layers, K and V, heads, width, bytes, tokens
    assert block_bytes(decoder, 16, 7) == 7 * size(decoder, 16).bytes_held
    assert block_bytes(decoder, 16, 0) == 0
    table = runs(Requests.of([[0, 1], [0, 2]], block_size=16))
    assert [p.bytes for p in prices(decoder, table, [2, None])] == [block_bytes(decoder, 16, n) for n in (2, 3)]


def test_ttl_and_least_prefix_reach_the_price() -> None:
    decoder = read_model("gpt2")
    requests = Requests.of([[0], [0, 1], [0, 1]], block_size=16, time=[0.0, 90.0, 100.0])
    table = runs(requests)
    saved = [
        prices(decoder, table, [None], ttl=ttl, min_prefix=m)[0].states_saved
        for ttl, m in ((None, 0), (60, 0), (None, 2))
    ]
    assert saved == [16 + 31, 31, 31]
    assert np.array_equal(table.hits(ttl=60), [0, 0, 2])
