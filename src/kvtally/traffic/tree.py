"""Whether block ids are chained: an id has one parent, so that it stands for a whole prefix."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from kvtally.core.errors import InputError
from kvtally.traffic.requests import Ids, Ints, Requests
from kvtally.traffic.stack import COMPILED

STEP = 1 << 18  # accesses looked at together: few enough to stay in a processor's cache
ROOT = -1
UNSEEN = -2


def check_tree(requests: Requests, *, compiled: bool = COMPILED) -> None:
    """Nothing where every id has one parent; otherwise an InputError that names the id, both parents, the request."""
    ids, offsets = requests.ids, requests.offsets
    if not len(ids):
        raise InputError("no request asks for a block, expected prompts of at least one block")
    parent = np.full(requests.blocks, UNSEEN, dtype=ids.dtype)
    found = import_module("kvtally.traffic.tree_numba").first_wrong if compiled else _first_wrong
    wrong = found(offsets, ids, parent, ROOT, UNSEEN)
    if wrong < 0:
        return
    request = int(np.searchsorted(offsets, wrong, side="right")) - 1
    other = ROOT if wrong == offsets[request] else int(ids[wrong - 1])
    block = int(ids[wrong])
    first, second = ("no parent" if one == ROOT else f"parent {one:,}" for one in (int(parent[block]), other))
    raise InputError(
        f"block {block:,} has {first} and, in request {request + 1:,}, {second}, expected one: "
        "a hash collision, or ids that are not chained",
        hint="an id must stand for its whole prefix; write token ids or messages and they are chained here",
    )


def _first_wrong(offsets: Ints, ids: Ids, parent: Ids, root: int, unseen: int) -> int:
    """The first access whose id has another parent than before, or -1, where numba is missing."""
    starts = offsets[:-1]
    for at in range(0, len(ids), STEP):
        some = ids[at : at + STEP]
        before = np.empty_like(some)
        before[1:] = some[:-1]
        before[0] = ids[at - 1] if at else root
        low, high = np.searchsorted(starts, [at, at + len(some)])
        before[starts[low:high][starts[low:high] < len(ids)] - at] = root
        named = parent[some]
        new = np.flatnonzero(named == unseen)
        parent[some[new][::-1]] = before[new][::-1]  # the first to ask names the parent
        named[new] = parent[some[new]]
        wrong = np.flatnonzero(named != before)
        if len(wrong):
            return at + int(wrong[0])
    return -1
