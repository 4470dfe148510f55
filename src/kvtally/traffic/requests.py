"""The record every trace is read into: requests as paths of block ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvtally.core.errors import InputError

Ints = NDArray[np.int64]
Ids = NDArray[np.int32 | np.int64]  # four bytes each where all of them fit
Floats = NDArray[np.float64]

PER_REQUEST = ("time", "input_tokens", "output_tokens", "session", "model", "tenant")
TOGETHER = 1 << 12  # requests whose ids are picked at a time, so that indices to them stay few


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests in the order of their times; request r asks for blocks `ids[offsets[r] : offsets[r + 1]]`.

    `ids` are integers from 0 to `blocks` - 1, the same over the whole trace for the same prefix: a block stands for
    all tokens up to its end. `time` is in seconds. `session`, `model` and `tenant` are indices into
    `names["session"]`, `names["model"]` and `names["tenant"]`. A last block may be partial: `input_tokens` tells.
    `notes` are sentences on what the reader did (sorted, skipped, chained, or what it could not know). `ids` is empty
    where they stay on the workers of a cluster.

    >>> two = Requests.of([[0, 1], [0, 2, 3]], block_size=16)
    >>> len(two), two.accesses, two.blocks, two.path(1).tolist(), two.input_tokens.tolist()
    (2, 5, 4, [0, 2, 3], [32, 48])
    """

    offsets: Ints
    ids: Ids
    time: Floats
    input_tokens: Ints
    output_tokens: Ints
    block_size: int
    session: Ints
    model: Ints
    tenant: Ints
    names: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.offsets) - 1
        columns = [getattr(self, name) for name in PER_REQUEST]
        if n < 0 or any(len(column) != n for column in columns):
            raise InputError(f"columns of {[len(c) for c in columns]} requests with {n + 1} offsets, expected one more")
        if self.offsets[0] != 0 or (len(self.ids) and self.offsets[-1] != len(self.ids)):
            raise InputError(f"offsets end at {self.offsets[-1]:,} with {len(self.ids):,} ids, expected the same")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def accesses(self) -> int:
        """Blocks asked for, over all requests."""
        return int(self.offsets[-1])

    @property
    def blocks(self) -> int:
        """One more than the largest id."""
        return int(self.ids.max()) + 1 if len(self.ids) else 0

    def path(self, request: int) -> Ids:
        """The block ids of one request, root first."""
        return self.ids[self.offsets[request] : self.offsets[request + 1]]

    def chosen(self, requests: Ints) -> Requests:
        """Only these requests, in this order; names and notes stay.

        >>> Requests.of([[0, 1], [2], [0, 3]], block_size=16).chosen(np.array([2, 1])).ids.tolist()
        [0, 3, 2]
        """
        starts, lengths = self.offsets[:-1][requests], np.diff(self.offsets)[requests]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        ids = np.empty(int(offsets[-1]) if len(self.ids) else 0, dtype=self.ids.dtype)
        for at in range(0, len(requests) if len(ids) else 0, TOGETHER):
            some = self.ids[picked(starts[at : at + TOGETHER], lengths[at : at + TOGETHER])]
            ids[offsets[at] : offsets[at] + len(some)] = some
        columns = {name: getattr(self, name)[requests] for name in PER_REQUEST}
        return replace(self, offsets=offsets, ids=ids, **columns)

    @classmethod
    def of(cls, paths: list[list[int]], *, block_size: int, time: list[float] | None = None) -> Requests:
        """Requests from lists of ids: full blocks, one session, a second apart where no times are given."""
        lengths = np.array([len(path) for path in paths], dtype=np.int64)
        n, zeros = len(paths), np.zeros(len(paths), dtype=np.int64)
        return cls(
            offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
            ids=np.array([i for path in paths for i in path], dtype=np.int64),
            time=np.arange(n, dtype=np.float64) if time is None else np.array(time, dtype=np.float64),
            input_tokens=lengths * block_size,
            output_tokens=zeros,
            block_size=block_size,
            session=zeros,
            model=zeros,
            tenant=zeros,
            names={"session": ("all",), "model": ("all",), "tenant": ("all",)},
        )


def picked(starts: Ints, lengths: Ints) -> Ints:
    """Indices start, start + 1, … of each length, one after another.

    >>> picked(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    indices: Ints = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return indices


def whole_number(largest: int) -> type[np.int32 | np.int64]:
    """The type of numbers up to `largest`: four bytes where they fit."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64
