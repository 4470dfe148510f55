"""Whether block ids are chained, compiled."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True)
def first_wrong(offsets: Any, ids: Any, parent: Any, root: int, unseen: int) -> int:
    """The first access whose id has another parent than before, or -1; `parent` is filled on the way."""
    for r in range(len(offsets) - 1):
        before = root
        for at in range(offsets[r], offsets[r + 1]):
            block = ids[at]
            if parent[block] != before:
                if parent[block] != unseen:
                    return int(at)
                parent[block] = before
            before = block
    return -1
