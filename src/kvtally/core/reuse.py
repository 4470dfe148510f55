"""How often a prefix was seen before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kvtally.core.errors import InputError, require_int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Reuse:
    """The whole hit curve of a trace: blocks and tokens found in a cache of 0, 1, 2 … blocks.

    `hits[c]` are blocks and `tokens[c]` tokens found in a cache of c blocks, over all requests; the last value
    holds for every larger cache. A hit is always a prefix of its request. `tokens` leaves out the last token of a
    prompt, which is computed again for its logits. `accesses` are blocks asked for, `distinct` the different ones
    among them, `input_tokens` the prompts' tokens: token states computed without any cache. `conventions` are all
    choices that the numbers depend on, by name.

    >>> r = Reuse(requests=2, accesses=8, distinct=5, block_size=16, input_tokens=128, hits=[0, 1, 1, 3],
    ...           tokens=[0, 16, 16, 47])
    >>> r.possible, r.share(), r.at(9), r.blocks_for(Fraction(1, 3)), r.states(3)
    (3, Fraction(3, 8), 3, 1, 81)
    """

    requests: int
    accesses: int
    distinct: int
    block_size: int
    input_tokens: int
    hits: Sequence[int]
    tokens: Sequence[int]
    conventions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not len(self.hits) or len(self.hits) != len(self.tokens):
            raise InputError(
                f"curves of {len(self.hits):,} and {len(self.tokens):,} capacities, expected as many of both, from 0 on"
            )

    @property
    def possible(self) -> int:
        """Blocks found in a cache without limit."""
        return int(self.hits[-1])

    @property
    def most(self) -> int:
        """The smallest capacity, in blocks, that finds everything that is possible."""
        return self._first(self.possible)

    def at(self, capacity: int | None = None) -> int:
        """Blocks found in a cache of `capacity` blocks; None: without limit."""
        return int(self.hits[self._place(capacity)])

    def share(self, capacity: int | None = None) -> Fraction:
        """Blocks found of blocks asked for, exactly; 0 where nothing was asked for."""
        return Fraction(self.at(capacity), self.accesses) if self.accesses else Fraction(0)

    def token_share(self, capacity: int | None = None) -> Fraction:
        """Tokens found of prompt tokens, exactly."""
        found = int(self.tokens[self._place(capacity)])
        return Fraction(found, self.input_tokens) if self.input_tokens else Fraction(0)

    def states(self, capacity: int | None = None) -> int:
        """Token states of prompts that are computed with a cache of `capacity` blocks."""
        return self.input_tokens - int(self.tokens[self._place(capacity)])

    def blocks_for(self, part: Fraction | float) -> int:
        """The smallest capacity, in blocks, that finds at least `part` (0 to 1) of what is possible."""
        if not 0 <= part <= 1:
            raise InputError(f"`part` is {part}, expected a share from 0 to 1")
        wanted = Fraction(part).limit_denominator(10**9) * self.possible
        return self._first(-(-wanted.numerator // wanted.denominator))

    @property
    def knee(self) -> int:
        """The capacity, in blocks, where the curve lies furthest above the line from nothing to all possible.

        Beyond it a block finds less than the average block does. The first where several are as far.
        """
        last = self.most
        return max(range(last + 1), key=lambda c: int(self.hits[c]) * last - self.possible * c)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it; of the curve, the capacities that find 0, 1 … 100 % of what is possible."""
        places = sorted({self.blocks_for(Fraction(percent, 100)) for percent in range(101)})
        return {
            "requests": self.requests,
            "accesses": self.accesses,
            "distinct": self.distinct,
            "block_size": self.block_size,
            "input_tokens": self.input_tokens,
            "possible_blocks": self.possible,
            "possible_tokens": int(self.tokens[-1]),
            "knee_blocks": self.knee,
            "curve": [{"blocks": c, "hits": self.at(c), "tokens": int(self.tokens[c])} for c in places],
            "conventions": dict(self.conventions),
        }

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests, {self.accesses:,} blocks of {self.block_size:,} tokens asked for, "
            f"{self.distinct:,} different\nfound {self.possible:,} without limit, {float(self.share()):.2%}; "
            f"90 % of that in {self.blocks_for(Fraction(9, 10)):,} blocks"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{percent} %</th><td>{(c := self.blocks_for(Fraction(percent, 100))):,}</td>"
            f"<td>{float(self.share(c)):.2%}</td></tr>"
            for percent in (25, 50, 75, 90, 100)
        )
        head = "<tr><th>of what is possible</th><th>blocks</th><th>hit share</th></tr>"
        return f"<table><caption>{self.requests:,} requests</caption>{head}{rows}</table>"

    def _place(self, capacity: int | None) -> int:
        if capacity is None:
            return len(self.hits) - 1
        return min(require_int("capacity", capacity, least=0), len(self.hits) - 1)

    def _first(self, wanted: int) -> int:
        """The first capacity that finds at least `wanted` blocks: the curve never falls."""
        return bisect_left(self.hits, wanted)
