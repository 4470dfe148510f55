"""The same requests in larger blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvtally.core.errors import InputError
from kvtally.traffic.requests import Requests


def coarsened(requests: Requests, block_size: int) -> Requests:
    """The requests in blocks of a multiple of the trace's size: full blocks only, as engines share them.

    >>> one = Requests.of([[0, 1, 2, 3, 4]], block_size=16)
    >>> coarsened(one, 32).ids.tolist()  # blocks 0-1 and 2-3 are full; half a block is none
    [1, 3]
    """
    times, rest = divmod(block_size, requests.block_size)
    if rest or times < 1:
        raise InputError(
            f"`--block-size` is {block_size:,} and the trace has blocks of {requests.block_size:,} tokens, "
            "expected a multiple: what is inside a block is not known"
        )
    lengths = np.minimum(np.diff(requests.offsets) // times, requests.input_tokens // block_size)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    if not len(requests.ids):
        return replace(requests, offsets=offsets, block_size=block_size)
    ids = np.empty(int(offsets[-1]), dtype=requests.ids.dtype)
    for r, (at, length) in enumerate(zip(requests.offsets[:-1].tolist(), lengths.tolist(), strict=True)):
        ids[offsets[r] : offsets[r + 1]] = requests.ids[at + times - 1 : at + times * length : times]
    return replace(requests, offsets=offsets, ids=ids, block_size=block_size)
