"""Every capacity in one pass: equal to caches by hand, request by request."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace as changed
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally.core.errors import InputError
from kvtally.core.reuse import Reuse
from kvtally.traffic import stack
from kvtally.traffic.policies import POLICIES, policy_hits
from kvtally.traffic.replay import replay
from kvtally.traffic.requests import Requests
from kvtally.traffic.routing import ROUTES, route
from kvtally.traffic.runs import Runs, runs
from kvtally.traffic.stack import stack_runs
from kvtally.traffic.tree import check_tree
from traffic import brute

BLOCK = 16


def of(paths: brute.Paths, **changes: object) -> Requests:
    return changed(Requests.of(paths, block_size=BLOCK), **changes)


@given(brute.streams())
def test_equal_to_an_lru_by_hand_at_every_capacity(paths: brute.Paths) -> None:
    table = runs(of(paths))
    curve = table.curve()
    for capacity in range(table.requests.blocks + 2):
        want = brute.lru(paths, capacity)
        assert table.hits(capacity).tolist() == want
        assert curve[min(capacity, len(curve) - 1)] == sum(want)


@given(brute.streams(deepest=30))
def test_without_numba_the_runs_are_the_same(paths: brute.Paths) -> None:
    requests = of(paths)
    one, two = (stack_runs(requests.offsets, requests.ids, requests.blocks, compiled=c) for c in (True, False))
    assert [c.tolist() for c in one] == [c.tolist() for c in two]


@pytest.mark.parametrize("compiled", [True, False])
def test_slots_are_used_again_and_change_nothing(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs that are inherited whole, then many short ones, through a few slots."""
    draw = np.random.default_rng(7)
    paths = [[*range(int(draw.integers(0, 50)))] for _ in range(400)]
    requests = of([path if i % 3 else path[:1] for i, path in enumerate(paths)])
    wide = stack_runs(requests.offsets, requests.ids, requests.blocks, compiled=compiled)
    monkeypatch.setattr(stack, "SPARE", 0)
    assert stack.SLOTS * requests.blocks < len(requests)  # fewer slots than requests: they must be used again
    tight = stack_runs(requests.offsets, requests.ids, requests.blocks, compiled=compiled)
    assert [c.tolist() for c in wide] == [c.tolist() for c in tight]


@given(brute.streams(), st.integers(1, 9))
def test_the_plain_order_is_a_plain_lru_of_blocks(paths: brute.Paths, capacity: int) -> None:
    assert replay(of(paths), order="plain").at(capacity) == brute.plain_lru(paths, capacity)


@given(brute.streams(), st.integers(1, 12), st.sampled_from(POLICIES))
def test_policies_equal_caches_by_hand(paths: brute.Paths, capacity: int, policy: str) -> None:
    assert policy_hits(of(paths), policy, capacity).tolist() == brute.BY_NAME[policy](paths, capacity)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", [3, 11, 20, 41])
def test_policies_equal_caches_by_hand_on_long_skewed_streams(policy: str, capacity: int) -> None:
    """Long enough that blocks return after they left, which the memories of s3fifo and arc are for."""
    draw = np.random.default_rng(capacity)
    ids: dict[tuple[int, ...], int] = {}
    words = [tuple(np.minimum(draw.geometric(0.3, int(draw.integers(1, 5))), 9).tolist()) for _ in range(1500)]
    paths = [[ids.setdefault(word[: d + 1], len(ids)) for d in range(len(word))] for word in words]
    assert policy_hits(of(paths), policy, capacity).tolist() == brute.BY_NAME[policy](paths, capacity)


@given(brute.streams(), st.integers(1, 12))
def test_no_policy_beats_the_clairvoyant_bound(paths: brute.Paths, capacity: int) -> None:
    requests = of(paths)
    bound = policy_hits(requests, "belady", capacity).sum()
    assert all(policy_hits(requests, policy, capacity).sum() <= bound for policy in POLICIES)


def within(paths: brute.Paths, times: list[int], ttl: int) -> list[int]:
    """Hit blocks where a block is forgotten `ttl` seconds after it was last asked for."""
    last: dict[int, int] = {}
    found = []
    for path, now in zip(paths, times, strict=True):
        found.append(brute.prefix(path, {b for b, then in last.items() if now - then <= ttl}))
        last |= dict.fromkeys(path, now)
    return found


@given(brute.streams(), st.data())
def test_ttl_capacity_minimum_and_increment(paths: brute.Paths, data: st.DataObject) -> None:
    n = len(paths)
    times = sorted(data.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)))
    ttl, capacity, least, step = (data.draw(st.integers(0, most)) for most in (12, 12, 4, 3))
    table = runs(of(paths, time=np.array(times, dtype=np.float64)))
    assert table.hits(ttl=ttl).tolist() == within(paths, times, ttl)
    # evicted blocks are the least recent ones, and so are expired ones: the smaller prefix of the two stays
    both = [min(a, b) for a, b in zip(brute.lru(paths, capacity), within(paths, times, ttl), strict=True)]
    assert table.hits(capacity, ttl=ttl).tolist() == both
    long = [h if h >= least else 0 for h in both]
    assert table.hits(capacity, ttl=ttl, min_prefix=least).tolist() == long
    rounded = [h - h % (step + 1) for h in long]
    assert table.hits(capacity, ttl=ttl, min_prefix=least, increment=step + 1).tolist() == rounded
    curve = table.curve(ttl=ttl, min_prefix=least)
    assert curve[min(capacity, len(curve) - 1)] == sum(long)


@given(brute.streams(), st.data())
def test_the_last_token_of_a_prompt_is_never_saved(paths: brute.Paths, data: st.DataObject) -> None:
    lengths = [BLOCK * len(p) - (data.draw(st.integers(0, BLOCK - 1)) if p else 0) for p in paths]
    table = runs(of(paths, input_tokens=np.array(lengths, dtype=np.int64)))
    least = data.draw(st.integers(0, 4))
    curve = table.curves(min_prefix=least)[1]
    for capacity in range(table.requests.blocks + 1):
        hits = table.hits(capacity, min_prefix=least)
        want = [min(h * BLOCK, max(n - 1, 0)) for h, n in zip(hits.tolist(), lengths, strict=True)]
        assert table.tokens(hits).tolist() == want
        assert curve[min(capacity, len(curve) - 1)] == sum(want)


@given(brute.streams(), st.integers(1, 4), st.sampled_from(ROUTES), st.integers(0, 9))
def test_replicas_are_caches_of_their_own(paths: brute.Paths, replicas: int, how: str, capacity: int) -> None:
    requests = of(paths, session=np.arange(len(paths)) % 5)
    chosen = route(requests, replicas, how, seed=3)
    found = runs(requests, domains=chosen).hits(capacity)
    assert set(chosen.tolist()) <= set(range(replicas))
    for replica in range(replicas):
        mine = [path for path, where in zip(paths, chosen, strict=True) if where == replica]
        assert found[chosen == replica].tolist() == brute.lru(mine, capacity)


def test_sticky_keeps_a_session_and_longest_prefix_follows_its_blocks() -> None:
    paths = [[0, 1], [2, 3], [0, 1, 4], [2, 3, 5]]
    requests = of(paths, session=np.array([7, 3, 7, 3]))
    assert route(requests, 2, "sticky").tolist() == [0, 1, 0, 1]
    assert route(requests, 2, "longest-prefix").tolist() == [0, 1, 0, 1]
    assert route(of([[0, 1, 2], [0, 3, 4]]), 2, "longest-prefix").tolist() == [0, 1]  # a third is too little


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("paths", "bad"),
    [
        ([[0, 0]], 0),
        ([[0, 1], [1]], 1),  # a block in another place than before
        ([[0, 1], [0, 2], [3, 1]], 2),  # after another block, which was never there
        ([[0, 1], [0, 1, 1]], 1),
    ],
)
def test_ids_that_are_no_prefixes_are_refused(paths: brute.Paths, bad: int, compiled: bool) -> None:
    requests = of(paths)
    with pytest.raises(InputError, match=f"^request {bad}: a block id comes twice, or after another block"):
        stack_runs(requests.offsets, requests.ids, requests.blocks, compiled=compiled)


@given(st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=8))
def test_an_id_of_two_parents_is_named_with_and_without_numba(paths: brute.Paths) -> None:
    parents: dict[int, int] = {}
    wrong = None
    for r, path in enumerate(paths, start=1):
        for before, block in zip([-1, *path], path, strict=False):
            if parents.setdefault(block, before) != before and wrong is None:
                names = ["no parent" if p < 0 else f"parent {p}" for p in (parents[block], before)]
                wrong = f"block {block} has {names[0]} and, in request {r}, {names[1]}, expected one"
    for compiled in (True, False):
        if not any(paths):
            wrong = "no request asks for a block"
        with pytest.raises(InputError, match=wrong) if wrong else nullcontext():
            check_tree(of(paths), compiled=compiled)


def test_an_empty_trace_has_an_empty_curve() -> None:
    empty = replay(of([]))
    assert (empty.possible, empty.share(), empty.knee, empty.blocks_for(1)) == (0, 0, 0, 0)
    assert runs(of([]), domains=np.zeros(0, np.int64)).hits().tolist() == []


def test_the_record_answers_from_its_curve() -> None:
    reuse = replay(of([[0, 1, 2], [3], [0, 1, 2], [3]]))
    assert list(reuse.hits) == [0, 0, 1, 2, 4]  # 0 behind 3 at distance 2, and 3 behind three blocks
    assert (reuse.blocks_for(0.5), reuse.blocks_for(Fraction(51, 100)), reuse.blocks_for(0), reuse.most) == (3, 4, 0, 4)
    assert reuse.states(4) == 8 * BLOCK - (3 * BLOCK - 1) - (BLOCK - 1)
    assert reuse.to_dict()["curve"][-1] == {"blocks": 4, "hits": 4, "tokens": 4 * BLOCK - 2}
    with pytest.raises(InputError, match="`capacity` is -1"):
        reuse.at(-1)
    with pytest.raises(InputError, match="curves of 1 and 2 capacities"):
        Reuse(requests=0, accesses=0, distinct=0, block_size=1, input_tokens=0, hits=[0], tokens=[0, 0])


def test_the_knee_is_where_a_block_begins_to_find_less_than_the_average() -> None:
    reuse = Reuse(
        requests=1,
        accesses=100,
        distinct=9,
        block_size=1,
        input_tokens=100,
        hits=[0, 5, 10, 14, 15, 16],
        tokens=[0] * 6,
    )
    assert reuse.knee == 3


def test_the_run_table_is_an_arrow_table() -> None:
    table: Runs = runs(of([[0, 1], [0, 2], [0, 1]]))
    assert table.table().to_pydict() == {
        "request": [1, 2, 2],
        "depth": [0, 0, 1],
        "distance": [1, 1, 3],
        "length": [1, 1, 1],
        "last": [0, 1, 0],
    }
