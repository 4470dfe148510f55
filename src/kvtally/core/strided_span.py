"""How far back a query looks where one key stands for several tokens."""

from __future__ import annotations

from dataclasses import dataclass

from kvtally.core.errors import require_int, require_one_of
from kvtally.core.passes import Pass
from kvtally.core.span import KERNELS, causal_pairs, pyramid, tetrahedron, triangle


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedSpan:
    """The keys a query may see where one is made of every `stride` tokens, once the last of them is there.

    A query at position i sees (i + 1) // stride keys, at most `top_k` of them where that is given; all
    are held. Pairs as in `Span`: what the mask allows, or the rectangle of a dense kernel.

    >>> StridedSpan(stride=2).pairs(Pass(new=5), "causal"), StridedSpan(stride=2).pairs(Pass(new=5), "dense")
    (6, 10)
    """

    stride: int
    top_k: int | None = None

    def __post_init__(self) -> None:
        require_int("stride", self.stride, least=1)
        require_int("top_k", 1 if self.top_k is None else self.top_k, least=1)

    def sees(self, query: int, key: int) -> bool:
        """Whether a query at position `query` is compared with the `key`-th key, the newest standing for the chosen."""
        there = (query + 1) // self.stride
        return key < there and (self.top_k is None or there - key <= self.top_k)

    def held(self, context: int) -> int:
        """Keys there are once `context` tokens are."""
        return context // self.stride

    def reached(self, p: Pass) -> int:
        """Keys made in earlier passes, summed over the passes of `p`."""
        if not p.keep:
            return p.times * self.held(p.past)
        return _floors(p.times, self.stride, p.new, p.past)

    def written(self, p: Pass) -> int:
        """Keys that the passes of `p` make and keep."""
        return self.held(p.end) - self.held(p.past) if p.keep else 0

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        """Query-key pairs over all passes of `p`, the last `rows` new positions attending."""
        require_one_of("kernel", kernel, KERNELS)
        if kernel == "causal":
            return causal_pairs(p, rows, self._first, self._firsts)
        end = p.past + p.new
        if rows is None and not p.keep:
            last = end + p.times - 1
            whole = self._weighted(last) - self._weighted(end - 1)
            return whole - p.past * (self._sum(last) - self._sum(end - 1))
        step = p.new if p.keep else 1
        return (p.new if rows is None else rows) * _floors(p.times, self.stride, step, end)

    def _first(self, n: int) -> int:
        """Pairs of the first `n` queries: the sum of min(i // stride, top_k) over 0 < i <= n."""
        if self.top_k is None or n <= self.stride * self.top_k:
            return self._sum(n)
        return self._sum(self.stride * self.top_k) + (n - self.stride * self.top_k) * self.top_k

    def _firsts(self, m: int) -> int:
        """Sum of `_first(n)` over n < m."""
        if self.top_k is None or m <= self.stride * self.top_k + 1:
            return self._sums(m - 1)
        most = self.stride * self.top_k
        beyond = m - 1 - most
        return self._sums(most) + beyond * self._sum(most) + self.top_k * triangle(beyond)

    def _sum(self, n: int) -> int:
        """Sum of i // stride over i <= n."""
        whole, rest = divmod(n, self.stride)
        return self.stride * triangle(whole - 1) + whole * (rest + 1)

    def _sums(self, n: int) -> int:
        """Sum of `_sum(i)` over i <= n."""
        r, (whole, rest) = self.stride, divmod(n, self.stride)
        before = r * r * tetrahedron(whole - 2) + triangle(r) * triangle(whole - 1)
        return before + (rest + 1) * r * triangle(whole - 1) + whole * triangle(rest + 1)

    def _weighted(self, n: int) -> int:
        """Sum of i * (i // stride) over i <= n."""
        r, whole = self.stride, n // self.stride
        before = r * r * pyramid(whole - 1) + triangle(r - 1) * triangle(whole - 1)
        return before + whole * (triangle(n) - triangle(whole * r - 1))


def _floors(n: int, m: int, a: int, b: int) -> int:
    """Sum of (a*i + b) // m over i < n, by the Euclidean algorithm.

    >>> _floors(4, 3, 2, 1)  # 1//3 + 3//3 + 5//3 + 7//3
    4
    """
    total = 0
    while n > 0:
        total += triangle(n - 1) * (a // m) + n * (b // m)
        a, b = a % m, b % m
        top = a * n + b
        n, b, m, a = top // m, top % m, a, m
    return total
