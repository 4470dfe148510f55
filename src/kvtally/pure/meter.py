"""What counts while a small decoder runs: multiplications made, elements moved, pairs compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import mul

from kvtally.core.tally import Cell, Tally, Term

Vector = list[float]


class Meter:
    """Every multiplication that counts is made by `mul`, and nothing else makes one.

    `phase` and `layer` say where the run is, `on(term)` says what the next multiplications are for. Where only
    the outputs matter, `counting=False` makes dot products quickly and counts none of them.

    >>> meter = Meter()
    >>> meter.on(Term.qk)
    >>> meter.dot([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    32.0
    >>> meter.tally("causal").total
    3
    """

    def __init__(self, *, counting: bool = True) -> None:
        self.counting = counting
        self.phase = "prefill"
        self.layer: int | None = None
        self.macs: Counter[Cell] = Counter()
        self.kv: Counter[Cell] = Counter()
        self.comparisons: Counter[tuple[str, int | None]] = Counter()
        self.states = 0
        self._cell: Cell = ("prefill", None, "")

    def on(self, term: Term) -> None:
        """From now on multiplications are made for `term`."""
        self._cell = (self.phase, self.layer, term)

    def mul(self, a: float, b: float) -> float:
        """a * b, counted: the only counted multiplication there is."""
        self.macs[self._cell] += 1
        return a * b

    def dot(self, a: Sequence[float], b: Sequence[float]) -> float:
        """The sum of a[i] * b[i]: one multiplication for each element."""
        total = 0.0
        if not self.counting:
            return sum(map(mul, a, b), total)
        for x, y in zip(a, b, strict=True):
            total += self.mul(x, y)
        return total

    def apply(self, term: Term, matrix: Sequence[Vector], vector: Vector) -> Vector:
        """`matrix` times `vector`: one dot product for each row of the matrix."""
        self.on(term)
        return [self.dot(row, vector) for row in matrix]

    def moved(self, cell: str, vectors: Iterable[Vector]) -> None:
        """The elements of `vectors` went to the cache, or came from it."""
        self.kv[self.phase, self.layer, cell] += sum(len(vector) for vector in vectors)

    def compared(self, keys: int) -> None:
        """One query was compared with `keys` keys, by all heads together."""
        self.comparisons[self.phase, self.layer] += keys

    def tally(self, kernel: str) -> Tally:
        """What was counted so far."""
        return Tally(
            macs=self.macs,
            kv=self.kv,
            comparisons=self.comparisons,
            states=self.states,
            kernel=kernel,
            road="executed",
        )
