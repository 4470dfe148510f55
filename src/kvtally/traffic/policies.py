"""Other ways to choose what to evict, at one capacity, and the clairvoyant bound."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Container

import numpy as np
from numpy.typing import NDArray

from kvtally.core.errors import require_int, require_one_of
from kvtally.traffic.policy_arc import Arc
from kvtally.traffic.policy_s3fifo import S3Fifo
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import runs

Ints = NDArray[np.int64]
Cache = Callable[[int], None]  # one block is asked for; the set of resident blocks changes


def policy_hits(requests: Requests, policy: str, capacity: int) -> Ints:
    """Hit blocks of each request in a cache of `capacity` blocks under one of POLICIES.

    A hit is a prefix: a resident block behind a missing one is none. A request is judged against the state before
    it; then its blocks are asked for one by one, the last first and the root last. `belady` knows the future: after
    each request it keeps, of all resident and requested blocks, those asked for soonest again (of equal ones the
    nearer to the root), which no policy can beat.

    >>> three = Requests.of([[0, 1], [0, 2], [0, 1]], block_size=16)
    >>> policy_hits(three, "fifo", 2).tolist(), policy_hits(three, "belady", 2).tolist()
    ([0, 1, 1], [0, 1, 2])
    """
    require_one_of("policy", policy, POLICIES)
    require_int("capacity", capacity, least=1)
    if policy == "lru":
        return runs(requests).hits(capacity)
    if policy == "belady":
        return _clairvoyant(requests, capacity)
    resident: set[int] = set()
    ask = _CACHES[policy](resident, capacity)
    found = np.zeros(len(requests), np.int64)
    for r in range(len(requests)):
        path = requests.path(r).tolist()
        found[r] = _prefix(path, resident)
        for block in reversed(path):
            ask(block)
    return found


def _prefix(path: list[int], resident: Container[int]) -> int:
    for depth, block in enumerate(path):
        if block not in resident:
            return depth
    return len(path)


def _fifo(resident: set[int], capacity: int) -> Cache:
    """The block that came first goes first."""
    queue: deque[int] = deque()

    def ask(block: int) -> None:
        if block in resident:
            return
        if len(queue) == capacity:
            resident.remove(queue.popleft())
        queue.append(block)
        resident.add(block)

    return ask


def _lfu(resident: set[int], capacity: int) -> Cache:
    """The block asked for least often since it came goes first; of equal ones the least recent."""
    uses: dict[int, tuple[int, int]] = {}  # block: times asked for, when last
    heap: list[tuple[int, int, int]] = []
    now = 0

    def ask(block: int) -> None:
        nonlocal now
        now += 1
        if block not in resident and len(resident) == capacity:
            while True:
                times, when, victim = heapq.heappop(heap)
                if uses.get(victim) == (times, when):
                    break
            del uses[victim]
            resident.remove(victim)
        uses[block] = (uses.get(block, (0, 0))[0] + 1, now)
        heapq.heappush(heap, (*uses[block], block))
        resident.add(block)

    return ask


def _clairvoyant(requests: Requests, capacity: int) -> Ints:
    n = len(requests)
    following = _next_requests(requests)
    resident: dict[int, int] = {}  # block: the request that asks for it next
    heap: list[tuple[int, int, int]] = []  # furthest next request first, then the deepest
    found = np.zeros(n, np.int64)
    for r in range(n):
        path = requests.path(r).tolist()
        found[r] = _prefix(path, resident)
        for depth, block in enumerate(path):
            resident[block] = following[requests.offsets[r] + depth]
            heapq.heappush(heap, (-resident[block], -depth, block))
        while len(resident) > capacity:
            after, _, block = heapq.heappop(heap)
            if resident.get(block) == -after:
                del resident[block]
    return found


def _next_requests(requests: Requests) -> list[int]:
    """For each block asked for, the next request that asks for it; the number of requests where none does."""
    n = len(requests)
    owner = np.repeat(np.arange(n), np.diff(requests.offsets))
    order = np.argsort(requests.ids, kind="stable")
    following = np.full(len(owner), n, np.int64)
    same = requests.ids[order[1:]] == requests.ids[order[:-1]]
    following[order[:-1][same]] = owner[order[1:][same]]
    return [int(r) for r in following]


_CACHES: dict[str, Callable[[set[int], int], Cache]] = {"fifo": _fifo, "lfu": _lfu, "s3fifo": S3Fifo, "arc": Arc}
POLICIES = ("lru", *_CACHES, "belady")
