"""Stack distances of prefixes under LRU, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

BUCKET = 64  # slots that share one place of the Fenwick tree, which holds the buckets that are full
STEP = 128  # ids compared at once
LONG = 16  # a longer run that is taken whole is inherited, not written block by block
SHORT = np.iinfo(np.int32).max  # accesses beyond which numbers take eight bytes


@njit(cache=True, inline="always")
def _add(tree: Any, bucket: int, n: int) -> None:
    i = bucket + 1
    while i < len(tree):
        tree[i] += n
        i += i & -i


@njit(cache=True, inline="always")
def _grown(tree: Any, own: Any, used: int, n: int) -> int:
    """One slot more is used, and owns `n` blocks; how many are used."""
    own[used] = n
    used += 1
    if used % BUCKET == 0:
        _add(tree, used // BUCKET - 1, own[used - BUCKET : used].sum())
    return used


@njit(cache=True, inline="always")
def _shrunk(tree: Any, own: Any, slot: int, n: int, used: int) -> None:
    """`slot` owns `n` blocks less."""
    own[slot] -= n
    if slot // BUCKET < used // BUCKET:
        _add(tree, slot // BUCKET, -n)


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
    own[:live] = end[:live] - start[:live]
    for bucket in range(live // BUCKET):
        _add(tree, bucket, own[bucket * BUCKET : (bucket + 1) * BUCKET].sum())
    return live


@njit(cache=True)
def _shared(ids: Any, one: int, two: int, most: int) -> int:
    """How many ids from `one` on are the same as from `two` on, `most` at most."""
    i = 0
    while i + STEP <= most:
        differ = 0
        a, b = ids[one + i : one + i + STEP], ids[two + i : two + i + STEP]
        for j in range(STEP):
            differ |= a[j] ^ b[j]
        if differ:
            break
        i += STEP
    while i < most and ids[one + i] == ids[two + i]:
        i += 1
    return i


@njit(cache=True)
def _new(last: Any, blocks: Any, mine: int) -> bool:
    """Whether no block was asked for before; they are in slot `mine` from now on."""
    for block in blocks:
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
    wider = np.empty((5, 2 * count), rows.dtype)
    wider[:, :count] = rows
    return wider


def scan(offsets: Any, ids: Any, blocks: int, most: int) -> tuple[Any, int]:
    """The columns of all runs (request, depth, distance, length, last), and a bad request or -1."""
    number = np.int32 if len(ids) < SHORT else np.int64
    slots = np.zeros((most, 4), number).T  # start, end, owner, heir: what belongs to a slot lies together
    slots[3] = -1
    stack = slots, np.zeros(most // BUCKET + 2, np.int64), np.zeros(most, np.int32)
    return _scan(offsets, ids, np.full(blocks, -1, np.int32), stack, np.empty((5, 1024), number))


@njit(cache=True)
def _scan(offsets: Any, ids: Any, last: Any, stack: Any, rows: Any) -> tuple[Any, int]:
    """`last` is, for each block, a slot whose heir asked for it last."""
    slots, tree, own = stack
    start, end, owner, heir = slots
    count, seen, used = 0, 0, 0
    for r in range(len(offsets) - 1):
        first, stop = offsets[r], offsets[r + 1]
        if first == stop:
            continue
        if used == len(start):
            used = _compact(tree, own, last, slots)
        at = first
        while at < stop and last[ids[at]] >= 0:
            slot = _find(heir, last[ids[at]])
            depth = at - first
            if slot == used or start[slot] != depth:
                return rows[:, :count], r
            length = min(stop - at, end[slot] - depth)
            if end[slot] > depth + 1:  # the one block a slot owns is the one that led to it
                length = _shared(ids, at, offsets[owner[slot]] + depth, length)
            if length == 0:
                return rows[:, :count], r
            rows = _with_room(rows, count)
            rows[0, count], rows[1, count], rows[3, count], rows[4, count] = r, depth, length, owner[slot]
            rows[2, count] = seen - _sum(tree, own, slot) + depth + 1
            count += 1
            _inherited(last, slots, slot, ids[at : at + length], used)
            _shrunk(tree, own, slot, length, used)
            seen -= length
            at += length
        if not _new(last, ids[at:stop], used):
            return rows[:, :count], r
        seen += stop - first
        start[used], end[used], owner[used] = 0, stop - first, r
        used = _grown(tree, own, used, stop - first)
    return rows[:, :count], -1
