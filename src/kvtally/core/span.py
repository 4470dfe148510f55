"""How far back a query looks: the pairs it makes and the past that must be held for it."""

from __future__ import annotations

from dataclasses import dataclass

from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.passes import Pass

KERNELS = ("causal", "dense")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The positions a causal query may see: all before it, the last `window`, or its own `chunk`.

    `window` counts the query itself; `chunk` cuts the sequence at its multiples, and a query sees
    its own piece only. Pairs are counted under one of two kernels, always named:
    `"causal"` counts the pairs the mask allows; `"dense"` the rectangle that a dense kernel
    multiplies, new rows against the past that is held plus the new ones.

    >>> Span().pairs(Pass(new=4), "causal"), Span().pairs(Pass(new=4), "dense")
    (10, 16)
    >>> Span(window=2).pairs(Pass(new=4), "causal")
    7
    """

    window: int | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        for name in ("window", "chunk"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), least=1)
        if self.window is not None and self.chunk is not None:
            raise InputError(f"`window` is {self.window} and `chunk` is {self.chunk}, expected one of them")

    @property
    def limit(self) -> int | None:
        """Most keys a query can see, itself included; None when nothing limits it."""
        return self.window if self.window is not None else self.chunk

    def sees(self, query: int, key: int) -> bool:
        """Whether the query at position `query` may be compared with the key at position `key`.

        >>> Span(chunk=4).sees(5, 4), Span(chunk=4).sees(5, 3)
        (True, False)
        """
        if self.chunk is not None:
            return query // self.chunk == key // self.chunk and key <= query
        return key <= query and (self.window is None or query - key < self.window)

    def held(self, context: int) -> int:
        """Tokens whose K and V attention needs once `context` tokens are there: min(context, limit).

        >>> Span(window=4).held(3), Span(window=4).held(9)
        (3, 4)
        """
        return context if self.limit is None else min(context, self.limit)

    def reach(self, past: int) -> int:
        """Tokens of the past that the next query may see: min(past, limit - 1)."""
        return past if self.limit is None else min(past, self.limit - 1)

    def reached(self, p: Pass) -> int:
        """`reach` summed over the passes of `p`: past tokens whose K and V are read.

        >>> Span(window=4).reached(Pass(new=1, past=2, times=3))  # 2 + 3 + 3
        8
        """
        if not p.keep:
            return p.times * self.reach(p.past)
        return _capped_sum(p.past, p.new, p.times, self.reach(LIMITLESS))

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        """Query-key pairs of the pass (of all of them, where `times` is more than one).

        `rows` is the number of last rows that attend, None for every new one. With F(n) the pairs
        of the first n queries, a pass makes F(past+new) - F(past+new-rows) pairs: passes that
        continue each other telescope, and passes that start over sum F once more.
        Chunked layers: a dense kernel holds the last `chunk` - 1 tokens, as frameworks do, so it
        multiplies more than the mask allows even when one token is new.
        """
        require_one_of("kernel", kernel, KERNELS)
        return self._causal(p, rows) if kernel == "causal" else self._dense(p, rows)

    def _causal(self, p: Pass, rows: int | None) -> int:
        end = p.past + p.new
        if p.keep and (rows is None or rows == p.new):
            return self._first(p.end) - self._first(p.past)
        if p.times == 1:
            return self._first(end) - self._first(end - (p.new if rows is None else rows))
        ends = self._firsts(end + p.times) - self._firsts(end)
        if rows is None:
            return ends - p.times * self._first(p.past)
        return ends - (self._firsts(end - rows + p.times) - self._firsts(end - rows))

    def _dense(self, p: Pass, rows: int | None) -> int:
        limit = self.reach(LIMITLESS)
        if rows is None and not p.keep:
            last = p.new + p.times - 1
            squares = _pyramid(last) - _pyramid(p.new - 1)
            return squares + self.reach(p.past) * p.tokens
        rows = p.new if rows is None else rows
        step = p.new if p.keep else 1
        before = _capped_sum(p.past + p.new - rows, step, p.times, limit)
        return rows * (before + p.times * rows)

    def _first(self, n: int) -> int:
        """Pairs of the first `n` queries of a sequence under the causal mask."""
        if self.chunk is not None:
            whole, rest = divmod(n, self.chunk)
            return whole * _triangle(self.chunk) + _triangle(rest)
        if self.window is None or n <= self.window:
            return _triangle(n)
        return _triangle(self.window) + (n - self.window) * self.window

    def _firsts(self, m: int) -> int:
        """Sum of `_first(n)` over n < m."""
        if self.chunk is not None:
            c, (whole, rest) = self.chunk, divmod(m, self.chunk)
            pieces = _triangle(c) * (c * _triangle(whole - 1) + rest * whole)
            return pieces + whole * _tetrahedron(c - 1) + _tetrahedron(rest - 1)
        if self.window is None or m <= self.window + 1:
            return _tetrahedron(m - 1)
        w, beyond = self.window, m - 1 - self.window
        return _tetrahedron(w) + beyond * _triangle(w) + w * _triangle(beyond)


LIMITLESS = 1 << 200  # longer than any sequence: what a span without limit may reach


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def _tetrahedron(n: int) -> int:
    return n * (n + 1) * (n + 2) // 6


def _pyramid(n: int) -> int:
    return n * (n + 1) * (2 * n + 1) // 6


def _capped_sum(start: int, step: int, times: int, cap: int) -> int:
    """Sum of min(start + k*step, cap) over k < times."""
    below = min(times, max(0, -(-(cap - start) // step)))
    return below * start + step * _triangle(below - 1) + (times - below) * cap
