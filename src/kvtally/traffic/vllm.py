"""Hits of vLLM's own block manager, request by request."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from kvtally.core.errors import InputError, require_int
from kvtally.traffic.requests import Requests

Ints = NDArray[np.int64]
NOTHING = -1  # held by a slot whose block cannot be found again


class _Pool:
    """Blocks in the order they are taken, least recently freed first, and which of them hold which id."""

    def __init__(self, capacity: int) -> None:
        self.free: OrderedDict[int, int] = OrderedDict((slot, NOTHING) for slot in range(capacity))  # slot: id it holds
        self.holding: dict[int, list[int]] = {}  # id: slots that hold it, the first to do so in front

    def take(self) -> int:
        slot, held = self.free.popitem(last=False)
        if held != NOTHING:
            self.holding[held].remove(slot)
            if not self.holding[held]:
                del self.holding[held]
        return slot


def vllm_hits(requests: Requests, capacity: int) -> Ints:
    """Hit blocks of each request in vLLM's prefix cache of `capacity` blocks, one request at a time.

    Only full blocks are kept, and at most floor((input_tokens - 1) / block_size) hit: one token at least is
    computed again. A prompt whose every block is known thus takes a second slot for its last one. A partial last
    block takes a slot while its request runs, and is the first to be taken again. The others are freed from the
    last to the first, behind all that are free.
    Raises InputError for a prompt that does not fit. Not modelled: blocks of generated tokens, preemption.

    >>> vllm_hits(Requests.of([[0, 1], [0, 1], [0, 1, 2]], block_size=16), 4).tolist()
    [0, 1, 2]
    """
    require_int("capacity", capacity, least=1)
    pool = _Pool(capacity)
    found = np.zeros(len(requests), np.int64)
    size, tokens = requests.block_size, requests.input_tokens.tolist()
    for r in range(len(requests)):
        if -(-tokens[r] // size) > capacity:
            raise InputError(
                f"request {r} takes {-(-tokens[r] // size):,} blocks, expected at most the {capacity:,} of the cache",
                hint="ask for a larger capacity, or leave such requests out",
            )
        found[r] = _serve(pool, requests.path(r)[: tokens[r] // size].tolist(), tokens[r], size)
    return found


def _serve(pool: _Pool, path: list[int], tokens: int, size: int) -> int:
    """Hit blocks of one request with the full blocks `path`; the pool is as it leaves it."""
    most = max(tokens - 1, 0) // size
    slots: list[int] = []
    for block in path[:most]:
        if block not in pool.holding:
            break
        slots.append(pool.holding[block][0])
    hits = len(slots)
    for slot in slots:
        del pool.free[slot]
    slots += [pool.take() for _ in range(-(-tokens // size) - hits)]
    for block, slot in zip(path[hits:], slots[hits:], strict=False):
        pool.holding.setdefault(block, []).append(slot)
    for block, slot in reversed(list(zip(path, slots, strict=False))):
        pool.free[slot] = block
    for slot in slots[len(path) :]:  # holds nothing to find again, so it is taken first
        pool.free[slot] = NOTHING
        pool.free.move_to_end(slot, last=False)
    return hits
