"""The KV cache itself: for each layer and KV head two growing lists, keys and values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from kvtally.pure.meter import Meter, Vector

Slot = tuple[int, str]  # layer, and which mixer of the layer
EVERYTHING = sys.maxsize  # how far back a query looks that nothing limits


@dataclass(slots=True)
class Head:
    """One KV head: a key and a value for each token, the oldest first."""

    keys: list[Vector] = field(default_factory=list)
    values: list[Vector] = field(default_factory=list)

    def last(self, tokens: int) -> Head:
        """The newest `tokens` keys and values."""
        start = max(0, len(self.keys) - tokens)
        return Head(self.keys[start:], self.values[start:])

    def append(self, newer: Head) -> None:
        """Both lists grow: this is all that caching is."""
        self.keys += newer.keys
        self.values += newer.values

    def forget_but(self, tokens: int) -> None:
        """Drops all but the newest `tokens` keys and values."""
        gone = max(0, len(self.keys) - tokens)
        del self.keys[:gone], self.values[:gone]


def as_made(heads: list[Head]) -> list[Head]:
    """Keys and values as the projections gave them: this cache is exact."""
    return heads


@dataclass(slots=True)
class State:
    """What a recurrent mixer remembers, always of one size.

    The last inputs of its convolution, a matrix a head, the last token, and sums element by element.
    """

    inputs: list[Vector]
    matrices: list[list[Vector]]
    last: Vector
    sums: Vector


@dataclass(slots=True)
class KVCache:
    """The keys and values of the first `length` tokens, by layer and KV head. No queries.

    A new token compares its own query with the keys of all tokens before it, and mixes their values.
    A key or a value depends on the tokens up to its own only, so it is the same in every later pass:
    keep it. No later pass asks for an old query: forget it.

    A head that looks back a window keeps the last window - 1 tokens between passes; layers that share
    K and V read one slot, which keeps what the furthest looking of them asks for. `source` are keys
    and values of an encoder's output, `states` what recurrent mixers remember, `waiting` tokens that
    are to be pooled into a compressed entry. `stored` turns new keys and values of attention into what is read
    back of them, also by the pass that made them.

    >>> cache, meter, slot = KVCache(), Meter(), (0, "mixer")
    >>> for token in range(3):
    ...     cache.append(slot, [Head([[1.0 * token, 2.0]], [[3.0 * token]])], meter)
    >>> cache.read(slot, 2, meter)  # one KV head, its last two tokens
    [Head(keys=[[1.0, 2.0], [2.0, 2.0]], values=[[3.0], [6.0]])]
    >>> meter.tally("causal").cells()
    {'k_write': 6, 'v_write': 3, 'k_read': 4, 'v_read': 2}
    """

    length: int = 0
    heads: dict[Slot, list[Head]] = field(default_factory=dict)
    source: dict[Slot, list[Head]] = field(default_factory=dict)
    states: dict[Slot, State] = field(default_factory=dict)
    waiting: dict[Slot, list[Vector]] = field(default_factory=dict)
    stored: Callable[[list[Head]], list[Head]] = field(default=as_made, repr=False)
    _reach: dict[Slot, int] = field(default_factory=dict)

    def read(self, slot: Slot, reach: int, meter: Meter) -> list[Head]:
        """The last `reach` keys and values of each KV head; every element is counted as read."""
        self._reach[slot] = max(reach, self._reach.get(slot, 0))
        past = [head.last(reach) for head in self.heads.get(slot, [])]
        _moved("read", past, meter)
        return past

    def append(self, slot: Slot, new: list[Head], meter: Meter) -> None:
        """Appends new keys and values, one Head for each KV head, and drops what no later query will see."""
        heads = self.heads.setdefault(slot, [Head() for _ in new])
        for head, newer in zip(heads, new, strict=True):
            head.append(newer)
            head.forget_but(self._reach.get(slot, EVERYTHING))
        _moved("write", new, meter)

    def keep_source(self, slot: Slot, heads: list[Head], meter: Meter) -> None:
        """Keeps the keys and values of an encoder's output, written once."""
        self.source[slot] = heads
        _moved("write", heads, meter)

    def read_source(self, slot: Slot, meter: Meter) -> list[Head]:
        """The keys and values of an encoder's output."""
        _moved("read", self.source[slot], meter)
        return self.source[slot]

    def crop(self, length: int) -> bool:
        """Forgets the tokens from `length` on; False where what was kept does not allow it.

        Neither a recurrent state nor a compressed entry can be wound back, and a window has dropped tokens
        it would need again.
        """
        heads = [head for slot in self.heads.values() for head in slot]
        if self.states or self.waiting or any(len(head.keys) < self.length for head in heads):
            return False
        for head in heads:
            del head.keys[length:], head.values[length:]
        self.length = length
        return True

    def keep_state(self, slot: Slot, state: State, meter: Meter) -> None:
        """Keeps a recurrent state in place of the one before."""
        self.states[slot] = state
        meter.moved("state", [*state.inputs, state.last, state.sums])
        for matrix in state.matrices:
            meter.moved("state", matrix)


def _moved(way: str, heads: list[Head], meter: Meter) -> None:
    for head in heads:
        meter.moved(f"k_{way}", head.keys)
        meter.moved(f"v_{way}", head.values)
