"""S3-FIFO: a small queue for newcomers, a main queue, and a memory of what left the small one."""

from __future__ import annotations

from collections import OrderedDict, deque

MOST_USES = 3


class S3Fifo:
    """Keeps `resident` at `capacity` blocks at most (Yang et al., SOSP 2023, algorithm 1).

    The small queue has a tenth of the room. What is asked for again more than once in it goes to the main queue,
    the rest leaves, and its name is remembered: what comes back goes to the main queue at once. There a block goes
    round once more for each use, of which at most three are counted.
    """

    def __init__(self, resident: set[int], capacity: int) -> None:
        self.resident, self.capacity, self.room = resident, capacity, max(capacity // 10, 1)
        self.small: deque[int] = deque()
        self.main: deque[int] = deque()
        self.ghost: OrderedDict[int, None] = OrderedDict()
        self.uses: dict[int, int] = {}

    def __call__(self, block: int) -> None:
        """One block is asked for."""
        if block in self.resident:
            self.uses[block] = min(self.uses[block] + 1, MOST_USES)
            return
        while len(self.resident) >= self.capacity:
            if self.small and (len(self.small) >= self.room or not self.main):
                self._leave_small()
            else:
                self._leave_main()
        if block in self.ghost:
            del self.ghost[block]
            self.main.append(block)
        else:
            self.small.append(block)
        self.uses[block] = 0
        self.resident.add(block)

    def _leave_small(self) -> None:
        block = self.small.popleft()
        if self.uses[block] > 1:
            self.uses[block] = 0
            self.main.append(block)
            return
        self._evict(block)
        self.ghost[block] = None
        if len(self.ghost) > self.capacity - self.room:
            self.ghost.popitem(last=False)

    def _leave_main(self) -> None:
        block = self.main.popleft()
        if self.uses[block]:
            self.uses[block] -= 1
            self.main.append(block)
            return
        self._evict(block)

    def _evict(self, block: int) -> None:
        self.resident.remove(block)
        del self.uses[block]
