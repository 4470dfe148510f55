"""Why the hit rate is what it is: cold requests, edits, pauses, the floor of the block size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from kvtally.traffic.coarsen import coarsened
from kvtally.traffic.requests import Ids, Ints, Requests
from kvtally.traffic.runs import Runs, runs

TTLS = (60, 300, 3600)  # seconds
COARSER = (2, 4, 16)  # times the block size of the trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Requests that follow another of their session in the same cache, and what they change inside its prompt.

    `edited` repeat not all full blocks of the previous prompt; `in_last_block` of them all but the last.
    `blocks` of the previous prompts are no longer their prefix: those from the first changed one on.
    """

    follow: int
    edited: int
    in_last_block: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What breaks reuse, in block accesses of `block_size` tokens with an unlimited cache.

    `whole` requests hit all their blocks; `cold` requests hit nothing and ask for `cold_accesses`; `within[ttl]`
    are hits on blocks asked for at most `ttl` seconds before, where a hit renews a block; `diverge` is (tokens
    from, tokens below, requests): where a prompt first differs from all before, requests seen whole left out;
    `coarser[size]` are accesses (of this block size) that hit where blocks have `size` tokens.
    """

    requests: int
    accesses: int
    hits: int
    block_size: int
    whole: int
    cold: int
    cold_accesses: int
    within: Mapping[int, int]
    diverge: tuple[tuple[int, int, int], ...]
    edits: Edits | None
    coarser: Mapping[int, int]

    @property
    def floor_tokens(self) -> int:
        """The most tokens shared past the last full block hit: a block less one for each prompt that differs."""
        return (self.requests - self.whole) * (self.block_size - 1)

    def to_dict(self) -> dict[str, Any]:
        """Every field, and `floor_tokens`, for JSON."""
        return {**asdict(self), "floor_tokens": self.floor_tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What only the ids tell, over all requests of a cache: their edits, and hits in larger blocks by block size."""

    edits: Edits
    coarser: Mapping[int, int]


def why(table: Runs, inside: Inside | None = None) -> Why:
    """What breaks reuse in the requests of a run table, in block accesses, with an unlimited cache.

    `inside` is worked out for one cache where it is not given. `edits` is None where the trace knows no sessions.

    >>> found = why(runs(Requests.of([[0, 1], [0, 2], [3]], block_size=16)))
    >>> found.hits, found.cold, found.diverge  # request 0 and 2 are cold; request 1 differs after 16 tokens
    (1, 2, ((0, 1, 2), (16, 32, 1)))
    """
    requests = table.requests
    found = inside or inside_of(requests)
    lengths = np.diff(requests.offsets)
    hits = table.hits()
    cold = hits == 0
    return Why(
        requests=len(requests),
        accesses=requests.accesses,
        hits=int(hits.sum()),
        block_size=requests.block_size,
        whole=int((hits == lengths).sum()),
        cold=int(cold.sum()),
        cold_accesses=int(lengths[cold].sum()),
        within={ttl: int(table.within(ttl).length.sum()) for ttl in TTLS},
        diverge=_diverge(hits[hits < lengths] * requests.block_size),
        edits=found.edits if len(requests.names["session"]) > 1 else None,
        coarser=found.coarser,
    )


def inside_of(requests: Requests, domains: Ints | None = None) -> Inside:
    """What only the ids tell; the sum over all caches where `domains` says which each request goes to.

    >>> inside_of(Requests.of([[0, 1, 2], [0, 1, 2, 3], [0, 4]], block_size=16)).edits
    Edits(follow=2, edited=1, in_last_block=0, blocks=3)
    """
    if domains is not None:
        each = (np.flatnonzero(domains == one) for one in np.unique(domains))
        return summed(requests.block_size, (inside_of(requests.chosen(chosen)) for chosen in each))
    coarser = {times * requests.block_size: _coarser(requests, times) for times in COARSER}
    return Inside(edits=edits(requests), coarser=coarser)


def summed(block_size: int, parts: Iterable[Inside]) -> Inside:
    """The sum over caches of their own."""
    found, coarser = Counter[str](), Counter({times * block_size: 0 for times in COARSER})
    for part in parts:
        found.update(asdict(part.edits))
        coarser.update(part.coarser)
    return Inside(edits=Edits(**{f.name: found[f.name] for f in fields(Edits)}), coarser=dict(coarser))


def edits(requests: Requests) -> Edits:
    """What follows change inside the previous prompt of their session, in the same cache."""
    previous: dict[int, Ids] = {}
    follow = edited = near = blocks = 0
    full = (requests.input_tokens // requests.block_size).tolist()
    for r, session in enumerate(requests.session.tolist()):
        path = requests.path(r)[: full[r]]
        before = previous.get(session)
        previous[session] = path
        if before is None:
            continue
        shared = _shared(before, path)
        follow += 1
        edited += shared < len(before)
        near += shared == len(before) - 1
        blocks += len(before) - shared
    return Edits(follow=follow, edited=edited, in_last_block=near, blocks=blocks)


def _shared(left: Ids, right: Ids) -> int:
    """Blocks at the start that are the same; an id stands for its whole prefix, so that counting is enough."""
    least = min(len(left), len(right))
    return int(np.count_nonzero(left[:least] == right[:least]))


def _coarser(requests: Requests, times: int) -> int:
    return times * int(runs(coarsened(requests, times * requests.block_size)).length.sum())


def _diverge(tokens: Ints) -> tuple[tuple[int, int, int], ...]:
    """Requests by powers of two of the tokens they share with any before; 0 apart."""
    powers = np.where(tokens > 0, np.floor(np.log2(np.maximum(tokens, 1))).astype(np.int64) + 1, 0)
    found, counts = np.unique(powers, return_counts=True)
    pairs = zip(found.tolist(), counts.tolist(), strict=True)
    return tuple((1 << (p - 1) if p else 0, 1 << p, n) for p, n in pairs)
