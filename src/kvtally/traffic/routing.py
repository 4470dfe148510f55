"""Which replica each request goes to."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.traffic.requests import Requests

Ints = NDArray[np.int64]
ROUTES = ("random", "round-robin", "sticky", "longest-prefix")


def domains(requests: Requests, *, per: str | None, replicas: int, how: str) -> Ints | None:
    """Which cache each request goes to: one `per` "tenant" or "model" and replica; None where there is one cache."""
    chosen = None if replicas == 1 else route(requests, replicas, how)
    if per is None:
        return chosen
    own: Ints = getattr(requests, per) * replicas
    return own if chosen is None else own + chosen


def route(requests: Requests, replicas: int, how: str, *, seed: int = 0) -> Ints:
    """The replica (0 … replicas - 1) of each request: caches of their own, to be given to `runs` as `domains`.

    `random` draws evenly with `seed`; `round-robin` takes turns; `sticky` gives each session, when it first comes,
    the next replica in turn; `longest-prefix` takes the replica that was sent the longest prefix of the request
    before (as if nothing were evicted), and of equal ones that with the fewest blocks asked for so far. A prefix
    of less than half of the request's blocks counts as none, as a system prompt shared by all would otherwise
    send everything to one replica.

    >>> three = Requests.of([[0, 1], [2], [0, 1, 3]], block_size=16)
    >>> route(three, 2, "longest-prefix").tolist(), route(three, 2, "round-robin").tolist()
    ([0, 1, 0], [0, 1, 0])
    """
    require_int("replicas", replicas, least=1)
    require_one_of("route", how, ROUTES)
    n = len(requests)
    if how == "random":
        draw = random.Random(seed)
        return np.array([draw.randrange(replicas) for _ in range(n)], np.int64)
    if how == "round-robin":
        return np.arange(n) % replicas
    if how == "sticky":
        _, first, session = np.unique(requests.session, return_index=True, return_inverse=True)
        return (np.argsort(np.argsort(first)) % replicas)[session]
    if len(requests.ids) < requests.accesses:
        raise InputError(
            "`--route` is 'longest-prefix' and the blocks are on a cluster, expected `random`, `round-robin` or "
            "`sticky`: where a prefix is longest is not known before all requests ahead of it are placed"
        )
    return _longest_prefix(requests, replicas)


def _longest_prefix(requests: Requests, replicas: int) -> Ints:
    """One bit a replica and block: whether it was sent there. Along a path, bits only ever go out."""
    sent = np.zeros((replicas, requests.blocks), np.bool_)
    asked = [0] * replicas
    chosen = np.zeros(len(requests), np.int64)
    for r in range(len(requests)):
        path = requests.path(r)
        seen = [_leading(sent[replica, path]) for replica in range(replicas)]
        known = [n if 2 * n >= len(path) else 0 for n in seen]
        best = min(range(replicas), key=lambda replica: (-known[replica], asked[replica], replica))
        sent[best, path] = True
        asked[best] += len(path)
        chosen[r] = best
    return chosen


def _leading(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """How many values at the start are true."""
    return len(mask) if mask.all() else int(np.argmin(mask))
