"""Stack distances of prefixes under LRU, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BUCKET = 64  # slots that share one place of the Fenwick tree, so that the tree stays small
STEP = 128  # ids compared at once
LONG = 16  # a longer run that is taken whole is inherited, not written block by block


@njit(cache=True, inline="always")
def _add(tree: Any, own: Any, slot: int, n: int) -> None:
    own[slot] += n
    i = slot // BUCKET + 1
    while i < len(tree):
        tree[i] += n
        i += i & -i


@njit(cache=True, inline="always")
def _sum(tree: Any, own: Any, slot: int) -> int:
    """Blocks owned by the slots up to `slot`: whole buckets from the tree, the rest one by one."""
    i = slot // BUCKET
    total = 0
    for n in own[i * BUCKET : slot + 1]:
        total += n
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@njit(cache=True, inline="always")
def _find(heir: Any, slot: int) -> int:
    """The slot that owns what `slot` owned: slots taken whole point to who took them."""
    while heir[slot] >= 0:
        after = heir[heir[slot]]
        if after < 0:
            return int(heir[slot])
        heir[slot] = after
        slot = after
    return slot


@njit(cache=True)
def _compact(tree: Any, own: Any, last: Any, slots: Any) -> int:
    """Slots still owning blocks, moved to the front in order; how many they are."""
    start, end, owner, heir = slots
    moved = np.full(len(start), -1, np.int32)
    live = 0
    for slot in range(len(start)):
        if end[slot] > start[slot]:
            moved[slot] = live
            start[live], end[live], owner[live] = start[slot], end[slot], owner[slot]
            live += 1
    for block in range(len(last)):
        if last[block] >= 0:
            last[block] = moved[_find(heir, last[block])]
    heir[:] = -1
    tree[:] = 0
    own[:] = 0
    for slot in range(live):
        _add(tree, own, slot, end[slot] - start[slot])
    return live


@njit(cache=True)
def _shared(one: Any, two: Any) -> int:
    """How many ids at the start of two pieces of equal length are the same."""
    i, most = 0, len(one)
    while i + STEP <= most:
        differ = 0
        a, b = one[i : i + STEP], two[i : i + STEP]
        for j in range(STEP):
            differ |= a[j] ^ b[j]
        if differ:
            break
        i += STEP
    while i < most and one[i] == two[i]:
        i += 1
    return i


@njit(cache=True)
def _new(ids: Any, last: Any, mine: int) -> bool:
    """Whether no block was asked for before; they are in slot `mine` from now on."""
    for block in ids:
        if last[block] >= 0:
            return False
        last[block] = mine
    return True


@njit(cache=True)
def _inherited(last: Any, slots: Any, slot: int, run: Any, mine: int) -> None:
    """The blocks of `run`, the first that `slot` owns, are in slot `mine` from now on."""
    start, end, _, heir = slots
    start[slot] += len(run)
    if start[slot] == end[slot] and len(run) > LONG:
        heir[slot] = mine
    else:
        for block in run:
            last[block] = mine


@njit(cache=True)
def _with_room(rows: Any, count: int) -> Any:
    """The same rows, with room for one more."""
    if count < rows.shape[1]:
        return rows
    wider = np.empty((5, 2 * count), np.int64)
    wider[:, :count] = rows
    return wider


@njit(cache=True)
def scan(offsets: Ints, ids: Ints, blocks: int, most: int) -> tuple[Any, int]:
    """The columns of all runs (request, depth, distance, length, last), and a bad request or -1."""
    last = np.full(blocks, -1, np.int32)  # a slot whose heir asked for a block last
    slots = np.zeros((most, 4), np.int64).T  # what belongs to a slot lies together
    start, end, owner, heir = slots
    heir[:] = -1
    own, tree = np.zeros(most, np.int32), np.zeros(most // BUCKET + 2, np.int64)
    rows = np.empty((5, 1024), np.int64)
    count, seen, used = 0, 0, 0
    for r in range(len(offsets) - 1):
        path = ids[offsets[r] : offsets[r + 1]]
        if len(path) == 0:
            continue
        if used == most:
            used = _compact(tree, own, last, slots)
        depth = 0
        while depth < len(path) and last[path[depth]] >= 0:
            slot = _find(heir, last[path[depth]])
            if slot == used or start[slot] != depth:
                return rows[:, :count], r
            theirs, stop = offsets[owner[slot]], min(len(path), end[slot])
            length = _shared(path[depth:stop], ids[theirs + depth : theirs + stop])
            if length == 0:
                return rows[:, :count], r
            rows = _with_room(rows, count)
            rows[0, count], rows[1, count], rows[3, count], rows[4, count] = r, depth, length, owner[slot]
            rows[2, count] = seen - _sum(tree, own, slot) + depth + 1
            count += 1
            _inherited(last, slots, slot, path[depth : depth + length], used)
            _add(tree, own, slot, -length)
            seen -= length
            depth += length
        if not _new(path[depth:], last, used):
            return rows[:, :count], r
        _add(tree, own, used, len(path))
        seen += len(path)
        start[used], end[used], owner[used] = 0, len(path), r
        used += 1
    return rows[:, :count], -1
