"""The run table: every known prefix of every request, with the cache size that would have kept it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.traffic.requests import Ids, Requests
from kvtally.traffic.stack import stack_runs

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]
ORDERS = ("engine", "plain")
COLUMNS = ("request", "depth", "distance", "length", "last")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """Runs of blocks that were asked for before: everything about reuse is a query on this table.

    Row i: request `request[i]` asks for `length[i]` blocks from depth `depth[i]` on which request `last[i]` was the
    last to ask for; the first is a hit in a cache of at least `distance[i]` blocks, the next needs one more, and so
    on. Distances rise along a request, so the hits of any cache are a prefix. Blocks never seen are in no row:
    there are `distinct` of them, counted in each cache where there are several.

    >>> two = runs(Requests.of([[0, 1], [0, 1, 2]], block_size=16))
    >>> two.hits(1).tolist(), two.hits().tolist(), two.curve().tolist()
    ([0, 1], [0, 2], [0, 1, 2])
    """

    requests: Requests
    request: Ids
    depth: Ids
    distance: Ids
    length: Ids
    last: Ids
    distinct: int

    def table(self) -> pa.Table:
        """The columns request, depth, distance, length and last as an Arrow table, one row a run."""
        import pyarrow as pa

        return pa.table({name: getattr(self, name) for name in COLUMNS})

    def within(self, ttl: float | None) -> Runs:
        """The runs whose blocks were asked for at most `ttl` seconds before: each request restarts the clock."""
        if ttl is None:
            return self
        time = self.requests.time
        kept = time[self.request] - time[self.last] <= ttl
        return replace(self, **{name: getattr(self, name)[kept] for name in COLUMNS})

    def hits(
        self, capacity: int | None = None, *, ttl: float | None = None, min_prefix: int = 0, increment: int = 1
    ) -> Ints:
        """Hit blocks of each request in a cache of `capacity` blocks (None: no limit).

        `ttl` in seconds since a block was last asked for; hits of fewer than `min_prefix` blocks count as none,
        and hits are rounded down to multiples of `increment` blocks.
        """
        require_int("increment", increment, least=1)
        kept = self.within(ttl)
        length: Ids = kept.length
        if capacity is not None:
            most = min(require_int("capacity", capacity, least=0), self.requests.accesses)
            length = np.clip(most - kept.distance + 1, 0, length)
        found = np.zeros(len(self.requests), np.int64)
        np.add.at(found, kept.request, length)
        found[found < min_prefix] = 0
        return found - found % increment

    def tokens(self, hits: Ints) -> Ints:
        """Prompt tokens that need not be computed, for hit blocks of each request: all but the last at most."""
        most = np.maximum(self.requests.input_tokens - 1, 0)
        return np.minimum(hits * self.requests.block_size, most)

    def curve(self, *, ttl: float | None = None, min_prefix: int = 0) -> Ints:
        """Hit blocks over all requests in a cache of 0, 1, 2 … blocks; the last value holds for all larger ones."""
        return _curve(_from_prefix(self.within(ttl), min_prefix))

    def curves(self, *, ttl: float | None = None, min_prefix: int = 0) -> tuple[Ints, Ints]:
        """`curve`, and the same of tokens that need not be computed: the last of a prompt always is."""
        kept = _from_prefix(self.within(ttl), min_prefix)
        size, hits = self.requests.block_size, _curve(kept)
        ends = (kept.depth + kept.length).astype(np.int64)
        over = ends * size - np.maximum(self.requests.input_tokens[kept.request] - 1, 0)
        less = np.zeros(len(hits), np.int64)
        past = over > 0  # the block that reaches the end of its prompt, at the end of a request's last run
        np.add.at(less, (kept.distance + kept.length - 1)[past], over[past])
        np.cumsum(less, out=less)  # in place, here and in `_curve`: a curve is as long as there are blocks
        return hits, np.subtract(hits * size, less, out=less)


def runs(requests: Requests, *, order: str = "engine", domains: Ints | None = None) -> Runs:
    """The run table of `requests`, under LRU, for all capacities at once.

    `order="engine"`: a request is atomic, judged against the state before it, and its blocks are then the most
    recent with the root newest, as engines free them. `order="plain"`: block by block, the root touched first, as
    a plain LRU of blocks does; hits then need not be a prefix, and every row is one block. `domains` gives
    each request a cache of its own kind (a replica, a tenant, a model); a capacity is then that of each.
    """
    require_one_of("order", order, ORDERS)
    if domains is None:
        return _one(requests, order)
    if len(domains) != len(requests):
        raise InputError(f"`domains` has {len(domains):,} values, expected one for each of {len(requests):,} requests")
    each = (np.flatnonzero(domains == one) for one in np.unique(domains))
    return joined(requests, ((chosen, _one(requests.chosen(chosen), order)) for chosen in each))


def joined(requests: Requests, parts: Iterable[tuple[Ints, Runs]]) -> Runs:
    """One table of the tables of caches of their own: (which of the requests came to a cache, its table)."""
    rows, distinct = [np.zeros((len(COLUMNS), 0), np.int32)], 0
    for chosen, part in parts:
        distinct += part.distinct
        rows.append(np.stack([chosen[part.request], part.depth, part.distance, part.length, chosen[part.last]]))
    table = np.concatenate(rows, axis=1)
    table = table[:, np.argsort(table[0], kind="stable")]
    return Runs(requests=requests, distinct=distinct, **dict(zip(COLUMNS, table, strict=True)))


def _one(requests: Requests, order: str) -> Runs:
    """The run table of requests in one cache."""
    offsets, ids = requests.offsets, requests.ids
    if order == "engine":
        columns = stack_runs(offsets, ids, requests.blocks)
    else:
        access, _, distance, length, last = stack_runs(np.arange(len(ids) + 1), ids, requests.blocks)
        owner = np.repeat(np.arange(len(requests)), np.diff(offsets))
        columns = (owner[access], access - offsets[owner[access]], distance, length, owner[last])
    distinct = requests.accesses - int(columns[3].sum())
    return Runs(requests=requests, distinct=distinct, **dict(zip(COLUMNS, columns, strict=True)))


def _curve(kept: Runs) -> Ints:
    ends = kept.distance + kept.length
    steps = np.zeros(int(ends.max(initial=1)) + 1, np.int64)
    np.add.at(steps, kept.distance, 1)
    np.add.at(steps, ends, -1)
    for _ in range(2):
        np.cumsum(steps, out=steps)
    return steps[:-1]


def _from_prefix(kept: Runs, least: int) -> Runs:
    """The same runs where the first `least` blocks of a request hit together or not at all.

    They all need the distance of the last of them: so each becomes a run of one block at that distance.
    """
    require_int("min_prefix", least, least=0)
    if least <= 1:
        return kept
    ends = kept.depth + kept.length
    least = min(least, int(ends.max(initial=0)) + 1)  # more is more than any run has
    crossing = np.flatnonzero((kept.depth < least) & (ends >= least))
    needed = kept.distance[crossing] + least - 1 - kept.depth[crossing]
    first = np.maximum(least - kept.depth, 0)  # blocks of a run among the first `least`
    beyond = np.flatnonzero(ends > least)
    together = np.repeat(crossing, least)
    return replace(
        kept,
        request=np.concatenate([kept.request[together], kept.request[beyond]]),
        depth=np.concatenate([np.tile(np.arange(least), len(crossing)), (kept.depth + first)[beyond]]),
        distance=np.concatenate([np.repeat(needed, least), (kept.distance + first)[beyond]]),
        length=np.concatenate([np.ones(len(together), np.int64), (kept.length - first)[beyond]]),
        last=np.concatenate([kept.last[together], kept.last[beyond]]),
    )
