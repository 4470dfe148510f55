"""Stack distances of prefixes under LRU, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FAN = 32  # places of a level that share one of the next
STEP = 128  # ids compared at once
ROWS = 1 << 17  # runs that are handed over together
AHEAD = 64  # requests whose first look-up is made together
LONG = 16  # a longer run that is taken whole is inherited, not written block by block
SHORT = np.iinfo(np.int32).max  # accesses beyond which numbers take eight bytes


@njit(cache=True, inline="always")
def _add(counts: Any, slot: int, n: int) -> None:
    """`slot` owns `n` blocks more."""
    for level in counts:
        level[slot] += n
        slot //= FAN


@njit(cache=True, inline="always")
def _sum(counts: Any, slot: int) -> int:
    """Blocks owned by the slots up to `slot`: at each level the places that no place of the next stands for."""
    one, two, three, four = counts
    total = 0
    for i in range(slot // FAN * FAN, slot + 1):
        total += one[i]
    slot //= FAN
    for i in range(slot // FAN * FAN, slot):
        total += two[i]
    slot //= FAN
    for i in range(slot // FAN * FAN, slot):
        total += three[i]
    for i in range(slot // FAN):
        total += four[i]
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
def _compact(counts: Any, last: Any, slots: Any) -> int:
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
    for level in counts:
        level[:] = 0
    for slot in range(live):
        _add(counts, slot, end[slot] - start[slot])
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
def _look_ahead(requests: Any, stack: Any, r: int) -> int:
    """Reads what the requests from `r` on begin with: memory answers many questions in the time of one."""
    (offsets, ids), (last, slots, counts) = requests, stack
    heir, own = slots[3], counts[0]
    firsts = offsets[r : min(r + AHEAD, len(offsets) - 1)]
    total = 0
    for at in firsts:
        total += last[ids[at]] if at < len(ids) else 0
    for at in firsts:
        slot = last[ids[at]] if at < len(ids) else -1
        if slot >= 0:
            total += heir[slot] + own[slot // FAN * FAN] + own[slot // FAN * FAN + FAN // 2]
    return total


def scan(offsets: Any, ids: Any, blocks: int, most: int) -> tuple[Any, int]:
    """The columns of all runs (request, depth, distance, length, last), and a bad request or -1."""
    number = np.int32 if len(ids) < SHORT else np.int64
    slots = np.zeros((most, 4), number).T  # start, end, owner, heir: what belongs to a slot lies together
    slots[3] = -1
    counts = tuple(np.zeros(most // FAN**level + FAN, number) for level in range(4))
    stack = np.full(blocks, -1, np.int32), slots, counts
    rows = np.empty((ROWS + int(np.diff(offsets).max(initial=0)), 5), number)
    state = np.zeros(4, np.int64)
    columns, bad = [], -1
    while bad < 0 and state[0] < len(offsets) - 1:
        count, bad = _scan((offsets, ids), stack, state, rows)
        columns.append(rows[:count].T.copy("C"))
    return np.concatenate(columns, axis=1) if columns else rows[:0].T, bad


@njit(cache=True)
def _scan(requests: Any, stack: Any, state: Any, rows: Any) -> tuple[int, int]:
    """Rows filled, of requests in turn until ROWS of them are, and a bad request or -1.

    `stack`: for each block a slot whose heir asked for it last, the slots, and how many blocks they own. `state`: the
    request to begin with, blocks asked for so far, slots used, and what was read ahead.
    """
    (offsets, ids), (last, (start, end, owner, heir), counts) = requests, stack
    count, (r, seen, used, near) = 0, state
    while r < len(offsets) - 1 and count < ROWS:
        first, stop = offsets[r], offsets[r + 1]
        if r % AHEAD == 0:
            near += _look_ahead(requests, stack, r)
        if used == len(start):
            used = _compact(counts, last, stack[1])
        at = first
        while at < stop and last[ids[at]] >= 0:
            slot = _find(heir, last[ids[at]])
            depth = at - first
            if slot == used or start[slot] != depth:
                return count, r
            length = min(stop - at, end[slot] - depth)
            if end[slot] > depth + 1:  # the one block a slot owns is the one that led to it
                length = _shared(ids, at, offsets[owner[slot]] + depth, length)
            if length == 0:
                return count, r
            row = rows[count]
            row[0], row[1], row[2] = r, depth, seen - _sum(counts, slot) + depth + 1
            row[3], row[4] = length, owner[slot]
            count += 1
            _inherited(last, stack[1], slot, ids[at : at + length], used)
            _add(counts, slot, -length)
            seen -= length
            at += length
        if not _new(last, ids[at:stop], used):
            return count, r
        seen += stop - first
        start[used], end[used], owner[used] = 0, stop - first, r
        _add(counts, used, stop - first)
        used += 1
        r += 1
    state[:] = r, seen, used, near
    return count, -1
