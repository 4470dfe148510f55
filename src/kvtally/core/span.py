"""How far back a query looks: the pairs it makes and the past that must be held for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.passes import Pass

KERNELS = ("causal", "dense")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The positions a causal query may see: all before it, the last `window`, or its own `chunk`.

    `window` counts the query itself; `chunk` cuts the sequence at its multiples, and a query sees
    its own piece only. `top_k` lets a query see at most that many blocks of `block` keys (1: single
    keys) of all before it, its own among them, chosen by an indexer: all must be held.
    Pairs are counted under one of two kernels, always named:
    `"causal"` counts the pairs the mask allows; `"dense"` the rectangle that a dense kernel
    multiplies, new rows against the past that is held plus the new ones.

    >>> Span().pairs(Pass(new=4), "causal"), Span().pairs(Pass(new=4), "dense")
    (10, 16)
    >>> Span(window=2).pairs(Pass(new=4), "causal")
    7
    """

    window: int | None = None
    chunk: int | None = None
    top_k: int | None = None
    block: int = 1

    def __post_init__(self) -> None:
        given = [name for name in ("window", "chunk", "top_k") if getattr(self, name) is not None]
        for name in given:
            require_int(name, getattr(self, name), least=1)
        if len(given) > 1:
            said = " and ".join(f"`{name}` is {getattr(self, name)}" for name in given)
            raise InputError(f"{said}, expected one of them")
        require_int("block", self.block, least=1, most=1 if self.top_k is None else None)

    @property
    def seen(self) -> int | None:
        """Most keys that a query is compared with under the causal mask, where they are the newest or chosen."""
        return self.window if self.top_k is None else self.top_k * self.block

    @property
    def limit(self) -> int | None:
        """How many keys back a query can look, itself included; None when nothing limits it."""
        return self.window if self.window is not None else self.chunk

    def sees(self, query: int, key: int) -> bool:
        """Whether the query at position `query` may be compared with the key at position `key`.

        Which blocks an indexer chooses depends on the text; here the newest `top_k` stand for them.

        >>> Span(chunk=4).sees(5, 4), Span(chunk=4).sees(5, 3)
        (True, False)
        """
        if self.chunk is not None:
            return query // self.chunk == key // self.chunk and key <= query
        if self.top_k is not None:
            return key <= query and query // self.block - key // self.block < self.top_k
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
        if kernel == "causal":
            return causal_pairs(p, rows, self._first, self._firsts)
        return self._dense(p, rows)

    def _dense(self, p: Pass, rows: int | None) -> int:
        limit = self.reach(LIMITLESS)
        if rows is None and not p.keep:
            last = p.new + p.times - 1
            squares = pyramid(last) - pyramid(p.new - 1)
            return squares + self.reach(p.past) * p.tokens
        rows = p.new if rows is None else rows
        step = p.new if p.keep else 1
        before = _capped_sum(p.past + p.new - rows, step, p.times, limit)
        return rows * (before + p.times * rows)

    def _first(self, n: int) -> int:
        """Pairs of the first `n` queries of a sequence under the causal mask."""
        if self.chunk is not None:
            return _pieces(n, self.chunk)
        if self.seen is None or n <= self.seen:
            return triangle(n)
        full, beyond = self.seen - self.block, n - self.seen
        return triangle(self.seen) + beyond * full + _pieces(beyond, self.block)

    def _firsts(self, m: int) -> int:
        """Sum of `_first(n)` over n < m."""
        if self.chunk is not None:
            return _sum_of_pieces(m, self.chunk)
        if self.seen is None or m <= self.seen + 1:
            return tetrahedron(m - 1)
        w, beyond = self.seen, m - 1 - self.seen
        full = (w - self.block) * triangle(beyond) + _sum_of_pieces(beyond + 1, self.block)
        return tetrahedron(w) + beyond * triangle(w) + full


LIMITLESS = 1 << 200  # longer than any sequence: what a span without limit may reach


def causal_pairs(p: Pass, rows: int | None, first: Callable[[int], int], firsts: Callable[[int], int]) -> int:
    """Pairs of the passes where `first(n)` are those of the first n queries, and `firsts(m)` its sum over n < m."""
    end = p.past + p.new
    if p.keep and (rows is None or rows == p.new):
        return first(p.end) - first(p.past)
    if p.times == 1:
        return first(end) - first(end - (p.new if rows is None else rows))
    ends = firsts(end + p.times) - firsts(end)
    if rows is None:
        return ends - p.times * first(p.past)
    return ends - (firsts(end - rows + p.times) - firsts(end - rows))


def triangle(n: int) -> int:
    """1 + 2 + ... + n."""
    return n * (n + 1) // 2


def tetrahedron(n: int) -> int:
    """The first n triangles."""
    return n * (n + 1) * (n + 2) // 6


def pyramid(n: int) -> int:
    """The first n squares."""
    return n * (n + 1) * (2 * n + 1) // 6


def _pieces(n: int, size: int) -> int:
    """Pairs of `n` queries that see their own piece only, pieces `size` long: the sum of k % size + 1 over k < n."""
    whole, rest = divmod(n, size)
    return whole * triangle(size) + triangle(rest)


def _sum_of_pieces(m: int, size: int) -> int:
    """Sum of `_pieces(n, size)` over n < m."""
    whole, rest = divmod(m, size)
    pieces = triangle(size) * (size * triangle(whole - 1) + rest * whole)
    return pieces + whole * tetrahedron(size - 1) + tetrahedron(rest - 1)


def _capped_sum(start: int, step: int, times: int, cap: int) -> int:
    """Sum of min(start + k*step, cap) over k < times."""
    below = min(times, max(0, -(-(cap - start) // step)))
    return below * start + step * triangle(below - 1) + (times - below) * cap
