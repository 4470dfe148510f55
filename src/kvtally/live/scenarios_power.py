"""Power: what the uncached pass itself must do before a cache can be compared with it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kvtally.live.adapter import Unsupported
from kvtally.live.scenarios import Bench, Pair, Scenario


def _repeated(bench: Bench) -> Iterator[Pair]:
    ids = bench.prompt()
    yield Pair(position=0, left=bench.full(ids), right=bench.again(ids))


def _late(bench: Bench) -> Iterator[Pair]:
    """The last third is changed; what stands before it must stay."""
    kept = _kept(bench)
    if kept == bench.tokens or bench.adapter.vocab_size < 2:
        raise Unsupported("no later token can be changed")
    left, right = bench.full(bench.prompt()), bench.full(_changed(bench))
    yield Pair(position=0, left=left[:, :kept], right=right[:, :kept])


def _kept(bench: Bench) -> int:
    return max(1, 2 * bench.tokens // 3)


def _changed(bench: Bench) -> torch.Tensor:
    """The prompt with another last third."""
    return torch.cat([bench.prompt()[:, : _kept(bench)], bench.prompt(1)[:, _kept(bench) :]], 1)


def _prefix(bench: Bench) -> Iterator[Pair]:
    ids, half = bench.prompt(), max(1, bench.tokens // 2)
    yield Pair(position=0, left=bench.full(ids)[:, :half], right=bench.again(ids[:, :half]))


def _rows(bench: Bench) -> Iterator[Pair]:
    rows = bench.prompt(), _changed(bench)  # the second one is run alone for `_late` already
    yield Pair(position=0, left=torch.cat([bench.full(row) for row in rows]), right=bench.again(torch.cat(rows)))


def _filled(bench: Bench) -> Iterator[Pair]:
    cache, ids = bench.need("fresh")(), bench.prompt()
    left = bench.full(ids)
    right = bench.extend(cache, ids)
    yield Pair(position=0, left=left, right=right)


def _early(bench: Bench) -> Iterator[Pair]:
    """An early token is changed: here the late logits must differ."""
    if bench.adapter.vocab_size < 2:
        raise Unsupported("a vocabulary of one token: no token can be changed")
    ids, at, late = bench.prompt(), bench.tokens // 3, max(0, bench.tokens - max(1, bench.tokens // 4))
    other = ids.clone()
    other[:, at] = bench.prompt(1)[:, at]
    yield Pair(position=late, left=bench.full(ids)[:, late:], right=bench.again(other)[:, late:])


REPEATED = Scenario(name="uncached pass repeated", group="power", run=_repeated)
LATE = Scenario(name="a late token changes nothing before it", group="power", run=_late)
PREFIX = Scenario(name="a shorter pass gives the same", group="power", run=_prefix)
ALONE = Scenario(name="rows of a batch equal rows alone", group="power", run=_rows)
EARLY = Scenario(name="an early token changes late logits", group="power", run=_early)
FILLED = Scenario(name="a full pass that fills a cache", group="power", run=_filled)
SCENARIOS = (REPEATED, LATE, PREFIX, ALONE, EARLY, FILLED)
