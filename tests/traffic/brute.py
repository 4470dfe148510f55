"""Caches by hand: lists, one block at a time, as slow and as plain as they can be."""

from __future__ import annotations

from hypothesis import strategies as st

Paths = list[list[int]]


@st.composite
def streams(draw: st.DrawFn, *, deepest: int = 6, most: int = 40) -> Paths:
    """Requests as paths of a tree: shared prefixes, repeats, empty and one-block requests, long ones."""
    words = draw(st.lists(st.lists(st.integers(0, 2), max_size=deepest), min_size=1, max_size=most))
    ids: dict[tuple[int, ...], int] = {}
    return [[ids.setdefault(tuple(word[: d + 1]), len(ids)) for d in range(len(word))] for word in words]


def prefix(path: list[int], resident: list[int] | set[int]) -> int:
    """Leading blocks of `path` that are resident."""
    hits = 0
    while hits < len(path) and path[hits] in resident:
        hits += 1
    return hits


def lru(paths: Paths, capacity: int) -> list[int]:
    """Hit blocks of each request: most recent first in one list, cut after each request."""
    stack: list[int] = []
    found = []
    for path in paths:
        found.append(prefix(path, stack))
        for block in reversed(path):
            if block in stack:
                stack.remove(block)
            stack.insert(0, block)
        del stack[capacity:]
    return found


def plain_lru(paths: Paths, capacity: int) -> int:
    """Hits of a plain LRU of blocks, the root touched first, each block judged when it is touched."""
    stack: list[int] = []
    hits = 0
    for block in (block for path in paths for block in path):
        hits += block in stack
        stack = [block, *(other for other in stack if other != block)][:capacity]
    return hits


def fifo(paths: Paths, capacity: int) -> list[int]:
    queue: list[int] = []
    found = []
    for path in paths:
        found.append(prefix(path, queue))
        for block in reversed(path):
            if block not in queue:
                queue = [*queue, block][-capacity:]
    return found


def lfu(paths: Paths, capacity: int) -> list[int]:
    resident: list[list[int]] = []  # uses, when last, block
    found, now = [], 0
    for path in paths:
        found.append(prefix(path, [row[2] for row in resident]))
        for block in reversed(path):
            now += 1
            mine = [row for row in resident if row[2] == block]
            if mine:
                mine[0][:2] = [mine[0][0] + 1, now]
                continue
            if len(resident) == capacity:
                resident.remove(min(resident))
            resident.append([1, now, block])
    return found


def s3fifo(paths: Paths, capacity: int) -> list[int]:
    small: list[list[int]] = []  # [block, uses], the oldest first
    main: list[list[int]] = []
    ghost: list[int] = []
    room = max(capacity // 10, 1)
    found = []
    for path in paths:
        found.append(prefix(path, [row[0] for row in small + main]))
        for block in reversed(path):
            known = [row for row in small + main if row[0] == block]
            if known:
                known[0][1] = min(known[0][1] + 1, 3)
                continue
            while len(small) + len(main) == capacity:
                if len(small) >= room or not main:
                    left, uses = small.pop(0)
                    if uses >= 2:
                        main.append([left, 0])
                    else:
                        ghost = ([*ghost, left])[-(capacity - room) :] if capacity > room else []
                else:
                    left, uses = main.pop(0)
                    if uses:
                        main.append([left, uses - 1])
            if block in ghost:
                ghost.remove(block)
                main.append([block, 0])
            else:
                small.append([block, 0])
    return found


class Figure:
    """The figure of the ARC paper with lists, least recent first."""

    def __init__(self, capacity: int) -> None:
        self.c, self.p = capacity, 0.0
        self.t1: list[int] = []
        self.t2: list[int] = []
        self.b1: list[int] = []
        self.b2: list[int] = []

    def replace(self, block: int) -> None:
        full = (block in self.b2 and len(self.t1) == self.p) or len(self.t1) > self.p or not self.t2
        if self.t1 and full:
            self.b1.append(self.t1.pop(0))
        else:
            self.b2.append(self.t2.pop(0))

    def ask(self, block: int) -> None:
        if block in self.t1 + self.t2:
            (self.t1 if block in self.t1 else self.t2).remove(block)
        elif block in self.b1:
            step = 1.0 if len(self.b1) >= len(self.b2) else len(self.b2) / len(self.b1)
            self.p = min(self.p + step, self.c)
            self.replace(block)
            self.b1.remove(block)
        elif block in self.b2:
            step = 1.0 if len(self.b2) >= len(self.b1) else len(self.b1) / len(self.b2)
            self.p = max(self.p - step, 0.0)
            self.replace(block)
            self.b2.remove(block)
        else:
            self.fourth_case(block)
            self.t1.append(block)
            return
        self.t2.append(block)

    def fourth_case(self, block: int) -> None:
        everything = len(self.t1 + self.t2 + self.b1 + self.b2)
        if len(self.t1 + self.b1) == self.c:
            if len(self.t1) < self.c:
                self.b1.pop(0)
                self.replace(block)
            else:
                self.t1.pop(0)
        elif everything >= self.c:
            if everything == 2 * self.c:
                self.b2.pop(0)
            self.replace(block)


def arc(paths: Paths, capacity: int) -> list[int]:
    figure = Figure(capacity)
    found = []
    for path in paths:
        found.append(prefix(path, figure.t1 + figure.t2))
        for block in reversed(path):
            figure.ask(block)
    return found


def belady(paths: Paths, capacity: int) -> list[int]:
    """After each request, the blocks that come soonest again are kept, nearer to the root first."""
    resident: set[int] = set()
    depth = {block: d for path in paths for d, block in enumerate(path)}
    found = []
    for r, path in enumerate(paths):
        found.append(prefix(path, resident))
        later = paths[r + 1 :]
        rank = {
            b: (next((i for i, p in enumerate(later) if b in p), len(paths)), depth[b], b) for b in {*resident, *path}
        }
        # a block that never comes again helps nobody: which of those are kept makes no difference
        resident = set(sorted(rank, key=lambda b: rank[b])[:capacity])
    return found


BY_NAME = {"lru": lru, "fifo": fifo, "lfu": lfu, "s3fifo": s3fifo, "arc": arc, "belady": belady}
