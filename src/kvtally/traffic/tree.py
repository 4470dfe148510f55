"""Whether block ids are chained: an id has one parent, so that it stands for a whole prefix."""

from __future__ import annotations

import numpy as np

from kvtally.core.errors import InputError
from kvtally.traffic.requests import Ints, Requests

STEP = 1 << 22  # accesses looked at together
ROOT = -1
UNSEEN = -2


def check_tree(requests: Requests) -> None:
    """Nothing where every id has one parent; otherwise an InputError that names the id, both parents, the request."""
    ids, starts = requests.ids, requests.offsets[:-1]
    if not len(ids):
        raise InputError("no request asks for a block, expected prompts of at least one block")
    parent = np.full(requests.blocks, UNSEEN, dtype=np.int64)
    for at in range(0, len(ids), STEP):
        some = ids[at : at + STEP]
        before = np.empty_like(some)
        before[1:] = some[:-1]
        before[0] = ids[at - 1] if at else ROOT
        low, high = np.searchsorted(starts, [at, at + len(some)])
        before[starts[low:high][starts[low:high] < len(ids)] - at] = ROOT
        new = parent[some] == UNSEEN
        parent[some[new][::-1]] = before[new][::-1]  # the first to ask names the parent
        wrong = np.flatnonzero(parent[some] != before)
        if len(wrong):
            _two_parents(requests, at + int(wrong[0]), int(some[wrong[0]]), parent, int(before[wrong[0]]))


def _two_parents(requests: Requests, access: int, block: int, parent: Ints, other: int) -> None:
    request = int(np.searchsorted(requests.offsets, access, side="right")) - 1
    first, second = ("no parent" if one == ROOT else f"parent {one:,}" for one in (int(parent[block]), other))
    raise InputError(
        f"block {block:,} has {first} and, in request {request + 1:,}, {second}, expected one: "
        "a hash collision, or ids that are not chained",
        hint="an id must stand for its whole prefix; write token ids or messages and they are chained here",
    )
