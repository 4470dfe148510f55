"""ARC: two LRU lists, asked for once and more often, whose sizes adapt to what was missed."""

from __future__ import annotations

from collections import OrderedDict

List = OrderedDict[int, None]


class Arc:
    """Keeps `resident` at `capacity` blocks at most (Megiddo and Modha, FAST 2003, figure 4).

    `t1` and `t2` are resident, `b1` and `b2` names of blocks that left them, all least recent first; `target` is
    the size that `t1` should have.
    """

    def __init__(self, resident: set[int], capacity: int) -> None:
        self.resident, self.capacity = resident, capacity
        self.t1: List = OrderedDict()
        self.t2: List = OrderedDict()
        self.b1: List = OrderedDict()
        self.b2: List = OrderedDict()
        self.target = 0.0

    def __call__(self, block: int) -> None:
        """One block is asked for."""
        if block in self.resident:
            self.t1.pop(block, None)
            self.t2.pop(block, None)
            self.t2[block] = None
            return
        if block in self.b1:
            more = max(len(self.b2) / len(self.b1), 1.0)
            self.target = min(self.target + more, float(self.capacity))
            self._come_back(block, self.b1, again=False)
        elif block in self.b2:
            less = max(len(self.b1) / len(self.b2), 1.0)
            self.target = max(self.target - less, 0.0)
            self._come_back(block, self.b2, again=True)
        else:
            self._make_room()
            self.t1[block] = None
        self.resident.add(block)

    def _come_back(self, block: int, names: List, *, again: bool) -> None:
        self._replace(again=again)
        del names[block]
        self.t2[block] = None

    def _replace(self, *, again: bool) -> None:
        over = len(self.t1) > self.target or (again and len(self.t1) == self.target)
        kept, names = (self.t1, self.b1) if self.t1 and (over or not self.t2) else (self.t2, self.b2)
        block, _ = kept.popitem(last=False)
        names[block] = None
        self.resident.remove(block)

    def _make_room(self) -> None:
        """Case IV of the figure: the block is in no list."""
        once = len(self.t1) + len(self.b1)
        known = once + len(self.t2) + len(self.b2)
        if once == self.capacity:
            if len(self.t1) < self.capacity:
                self.b1.popitem(last=False)
                self._replace(again=False)
            else:
                self.resident.remove(self.t1.popitem(last=False)[0])
        elif known >= self.capacity:
            if known == 2 * self.capacity:
                self.b2.popitem(last=False)
            self._replace(again=False)
