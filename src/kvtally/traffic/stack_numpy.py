"""Stack distances of prefixes under LRU, where numba is missing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class _Stack:
    """The requests that own blocks, oldest first, and how many blocks each owns."""

    def __init__(self, blocks: int, slots: int) -> None:
        self.last = np.full(blocks, -1, np.int64)
        self.start, self.end, self.owner = [0] * slots, [0] * slots, [0] * slots
        self.tree = [0] * (slots + 1)
        self.used = self.seen = 0

    def add(self, slot: int, n: int) -> None:
        self.seen += n
        i = slot + 1
        while i < len(self.tree):
            self.tree[i] += n
            i += i & -i

    def behind(self, slot: int) -> int:
        """Blocks owned by requests after `slot`."""
        total, i = 0, slot + 1
        while i > 0:
            total += self.tree[i]
            i -= i & -i
        return self.seen - total

    def compact(self) -> None:
        """Slots that still own blocks move to the front, in order."""
        live = [s for s in range(self.used) if self.end[s] > self.start[s]]
        moved = np.full(self.used + 1, -1, np.int64)  # the last place stands for -1, never asked for
        moved[live] = np.arange(len(live))
        self.last = moved[self.last]
        for column in (self.start, self.end, self.owner):
            column[: len(live)] = [column[s] for s in live]
        self.used, self.seen = len(live), 0
        self.tree = [0] * len(self.tree)
        for slot in range(self.used):
            self.add(slot, self.end[slot] - self.start[slot])


def scan(offsets: Ints, ids: Ints, blocks: int, slots: int) -> tuple[Any, int]:
    """The columns of all runs (request, depth, distance, length, last), and a bad request or -1."""
    stack = _Stack(blocks, slots)
    rows: list[tuple[int, int, int, int, int]] = []
    bad = -1
    for r in range(len(offsets) - 1):
        if offsets[r] == offsets[r + 1]:
            continue
        if stack.used == slots:
            stack.compact()
        if not _ask(stack, offsets, ids, r, rows):
            bad = r
            break
    return np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy(), bad


def _ask(stack: _Stack, offsets: Ints, ids: Ints, r: int, rows: list[tuple[int, int, int, int, int]]) -> bool:
    """Whether the request could be judged; its runs are added to `rows`, its blocks are the newest."""
    path = ids[offsets[r] : offsets[r + 1]]
    before = stack.last[path]
    edges = [0, *(np.flatnonzero(np.diff(before)) + 1).tolist(), len(path)]
    for depth, after in pairwise(edges):
        slot = int(before[depth])
        if slot < 0:
            if after != len(path):
                return False
            break
        theirs = ids[offsets[stack.owner[slot]] :]
        if stack.start[slot] != depth or not np.array_equal(path[depth:after], theirs[depth:after]):
            return False
        rows.append((r, depth, stack.behind(slot) + depth + 1, after - depth, stack.owner[slot]))
        stack.start[slot] = after
        stack.add(slot, depth - after)
    stack.last[path] = stack.used
    stack.start[stack.used], stack.end[stack.used], stack.owner[stack.used] = 0, len(path), r
    stack.add(stack.used, len(path))
    stack.used += 1
    return len(set(path.tolist())) == len(path)
