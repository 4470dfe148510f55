"""Stack distances of prefixes under LRU: every capacity in one exact pass."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from kvtally.core.errors import InputError
from kvtally.traffic.requests import Ids

Ints = NDArray[np.int64]
Columns = tuple[Ids, Ids, Ids, Ids, Ids]  # request, depth, distance, length, last: one row a run

COMPILED = find_spec("numba") is not None
SLOTS = 4  # for each block; more take memory, fewer take time to move them together
SPARE = 1024  # slots beside them, so that small traces are never moved


def stack_runs(offsets: Ints, ids: Ids, blocks: int, *, compiled: bool = COMPILED) -> Columns:
    """Runs of known blocks: request, depth of the first, its stack distance, length, and the request before.

    Request r asks for the path `ids[offsets[r] : offsets[r + 1]]`, root first; it is judged against the state
    before it, and its blocks are then the most recent, root newest. The stack is thus a row of requests, each
    owning one suffix of its path, [start, end). A block last asked for by q, at depth d, lies at distance
    (blocks owned by requests after q) + d - start(q) + 1, and is a hit in every cache of at least so many
    blocks. A tree of counts over requests gives the sum: one query for each run of equal last request.
    Blocks never asked for before are in no run. Distances rise along a path, so hits are always a prefix.
    Raises InputError where an id is no prefix: twice in a request, or after another parent than before.

    >>> columns = stack_runs(np.array([0, 2, 4, 7]), np.array([0, 1, 0, 2, 0, 1, 3]), 4, compiled=False)
    >>> [c.tolist() for c in columns]  # request 1 hits block 0 at distance 1; request 2 block 0, then 1 behind 2
    [[1, 2, 2], [0, 0, 1], [1, 1, 3], [1, 1, 1], [0, 1, 0]]
    """
    scan = import_module("kvtally.traffic.stack_numba" if compiled else "kvtally.traffic.stack_numpy").scan
    slots = int(min(len(offsets) - 1, SLOTS * blocks + SPARE)) + 1
    columns, bad = scan(offsets, ids, blocks, slots)
    if bad >= 0:
        raise InputError(
            f"request {bad}: a block id comes twice, or after another block than before; expected ids of prefixes",
            hint="an id must stand for all tokens up to its end: chain the hashes of the pieces",
        )
    request, depth, distance, length, last = columns
    return request, depth, distance, length, last
