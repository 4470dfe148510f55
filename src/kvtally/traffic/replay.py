"""Every capacity in one pass; policies, TTL, block size, routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from kvtally.core.reuse import Reuse
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import Runs, runs

Ints = NDArray[np.int64]


def replay(
    requests: Requests,
    *,
    order: str = "engine",
    ttl: float | None = None,
    min_prefix: int = 0,
    domains: Ints | None = None,
) -> Reuse:
    """Hit blocks and tokens of the requests in a prefix cache of every size at once, under LRU.

    `ttl` in seconds since a block was last asked for, `min_prefix` in blocks; `order` and `domains` as in `runs`.
    Not modelled: requests that overlap in time (each is done before the next), and blocks of generated tokens.

    >>> reuse = replay(Requests.of([[0, 1], [0, 1, 2]], block_size=16))
    >>> [reuse.at(c) for c in (0, 1, 2)], reuse.share()
    ([0, 1, 2], Fraction(2, 5))
    """
    return reuse(runs(requests, order=order, domains=domains), order=order, ttl=ttl, min_prefix=min_prefix)


def reuse(table: Runs, *, order: str = "engine", ttl: float | None = None, min_prefix: int = 0) -> Reuse:
    """The hit curve of a run table that is already there; `order` is the one it was made in."""
    requests = table.requests
    hits, tokens = table.curves(ttl=ttl, min_prefix=min_prefix)
    conventions = {
        "order": "request atomic, root newest afterwards" if order == "engine" else "block by block, root first",
        "ttl": "none" if ttl is None else f"{ttl:g} s since last asked for",
        "min_prefix": f"{min_prefix} blocks",
    }
    return Reuse(
        requests=len(requests),
        accesses=requests.accesses,
        distinct=table.distinct,
        block_size=requests.block_size,
        input_tokens=int(requests.input_tokens.sum()),
        hits=cast("Sequence[int]", hits),
        tokens=cast("Sequence[int]", tokens),
        conventions=tuple(conventions.items()),
    )
