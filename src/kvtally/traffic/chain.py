"""Block ids for what has none: tokens, or pieces of known length, chained so that an id stands for a whole prefix."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class TokenChain:
    """Ids of full blocks of tokens: the same id means the same tokens up to the end of the block.

    >>> chain = TokenChain(block_size=2)
    >>> chain.path([7, 7, 8, 9, 5]), chain.path([7, 7, 8, 8]), chain.path([8, 9])
    ([0, 1], [0, 2], [3])
    """

    block_size: int
    known: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def path(self, tokens: Sequence[int] | array[int]) -> list[int]:
        """The ids of the full blocks, root first; an array is one of 64-bit integers."""
        coded = (tokens if isinstance(tokens, array) else array("Q", tokens)).tobytes()
        width, parent, path = 8 * self.block_size, -1, []
        for at in range(0, len(coded) - width + 1, width):
            parent = self.known.setdefault((parent, coded[at : at + width]), len(self.known))
            path.append(parent)
        return path


@dataclass(slots=True, kw_only=True)
class PieceChain:
    """Runs of ids for pieces of known length; a block belongs to the piece in which it ends.

    A changed piece changes every id after it, whether or not later pieces are the same:

    >>> chain = PieceChain(block_size=4)
    >>> chain.path([("system", 8), ("a", 4)]), chain.path([("system", 8), ("b", 5), ("a", 4)])
    (([0, 2], [2, 1]), ([0, 3, 4], [2, 1, 1]))
    """

    block_size: int
    nodes: dict[tuple[int, Hashable], tuple[int, int, int]] = field(default_factory=dict)  # -> node, first id, end
    blocks: int = 0

    def path(self, pieces: Iterable[tuple[Hashable, int]]) -> tuple[list[int], list[int]]:
        """First ids and counts of the runs, root first."""
        node, end = -1, 0
        firsts, counts = [], []
        for piece, tokens in pieces:
            begin = end
            found = self.nodes.get((node, piece))
            if found is None:
                end = begin + tokens
                found = self.nodes[node, piece] = (len(self.nodes), self.blocks, end)
                self.blocks += end // self.block_size - begin // self.block_size
            node, first, end = found
            count = end // self.block_size - begin // self.block_size
            if count:
                firsts.append(first)
                counts.append(count)
        return firsts, counts
