"""What the cache of a text takes, exactly kept and as it is kept."""

from __future__ import annotations

from typing import Any

from kvtally.core.errors import KvtallyError
from kvtally.core.holding import Holding, holdings
from kvtally.live.rounding_cache import Kept, group_of
from kvtally.live.schemes import Scheme, stored_bytes
from kvtally.live.zoo_sizes import source_of
from kvtally.pure.config import read_config

EXACT, STATE = 2, 4  # bytes of an element as engines keep it


def bytes_of(model: Any, how: Kept, tokens: int) -> tuple[tuple[int, int] | None, str]:
    """Bytes of `tokens` tokens in one sequence at 16 bits, and as kept; or None, and why they are not counted.

    Scales and zero-points are counted as `size` counts them. Tokens that are not rounded, as their group or residual
    block is not full, take 2 bytes an element, as do index keys and inputs of a convolution; states take 4.
    """
    config, source = model.config, source_of(model.config.model_type, model.config)
    try:
        decoder = read_config(config.to_dict(), where=type(model).__name__, source=source)
        rows = [h for layer in holdings(decoder) for h in layer]
        return (sum(_held(h, Kept(), tokens) for h in rows), sum(_held(h, how, tokens) for h in rows)), ""
    except KvtallyError as error:
        return None, f"not counted: {error.problem}"


def _held(h: Holding, how: Kept, tokens: int) -> int:
    """Bytes of one holding."""
    rows, width = h.tokens(tokens), h.width
    if h.part == "state":
        return h.heads * (STATE * rows * width if how.state is None else stored_bytes(how.state, rows, width))
    part = "v" if h.values else "k"
    scheme = None if h.part in ("index", "conv") else how.of(part)
    if scheme is None:
        return h.heads * EXACT * rows * width
    waiting = 0 if h.part == "cross" or not how.block(part) else tokens % how.block(part)
    done = _whole(scheme, max(rows - waiting, 0))
    return h.heads * (stored_bytes(scheme, done, width) + EXACT * (rows - done) * width)


def _whole(scheme: Scheme, tokens: int) -> int:
    """Tokens that can be rounded: all, or whole groups of them."""
    return tokens if scheme.axis == "token" else tokens // group_of(scheme) * group_of(scheme)
