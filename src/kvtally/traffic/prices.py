"""What hits are worth: token states, multiplications, and the bytes of the cache that gave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvtally.core.decoder import Decoder
from kvtally.core.passes import Pass
from kvtally.pure.count_closed import count
from kvtally.pure.size import size
from kvtally.traffic.runs import Runs

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What the prompts of a trace cost a decoder, with a cache of `capacity` blocks (None: no limit) and without.

    `bytes` is the cache full of blocks (of all blocks the trace has, without limit). `states` are token states and
    `macs` multiplications of prompts, the pairs of the causal mask; decode steps cost the same either way and are
    not in them.
    """

    capacity: int | None
    bytes: int
    hits: int
    states_uncached: int
    states: int
    macs_uncached: int
    macs: int

    @property
    def states_saved(self) -> int:
        return self.states_uncached - self.states

    @property
    def macs_saved(self) -> int:
        return self.macs_uncached - self.macs

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it: exact integers."""
        return {
            "capacity_blocks": self.capacity,
            "capacity_bytes": self.bytes,
            "hit_blocks": self.hits,
            "states_uncached": self.states_uncached,
            "states": self.states,
            "macs_uncached": self.macs_uncached,
            "macs": self.macs,
        }


def prices(
    decoder: Decoder,
    table: Runs,
    capacities: Iterable[int | None],
    *,
    dtype: str = "bf16",
    ttl: float | None = None,
    min_prefix: int = 0,
) -> tuple[Price, ...]:
    """A Price for each capacity: every request's prompt is a pass, its hit the past of that pass.

    A hit of h tokens saves count(prompt, past 0) - count(prompt, past h). Under the causal mask that is the same
    for every prompt longer than h (splitting a pass changes no work), so it is counted once for each h:
    saved = sum over h of (requests with hit h) * saved(h), in Python integers.

    >>> from kvtally.core.decoder import lesson
    >>> from kvtally.traffic.requests import Requests
    >>> from kvtally.traffic.runs import runs
    >>> p = prices(lesson(), runs(Requests.of([[0], [0, 1]], block_size=4)), [2])[0]
    >>> p.states_uncached, p.states_saved, p.macs_saved  # 4 tokens * 3*64*64, and 2*64*(1+2+3+4) to compare and mix
    (12, 4, 50432)
    """
    requests = table.requests
    work = _work(decoder)
    uncached_states = int(requests.input_tokens.sum())
    uncached = _sum(lambda n: work(Pass(new=n)), requests.input_tokens[requests.input_tokens > 0])
    saved = _Known(lambda h: work(Pass(new=h + 1)) - work(Pass(new=1, past=h)) if h else 0)
    made = []
    for capacity in capacities:
        hits = table.hits(capacity, ttl=ttl, min_prefix=min_prefix)
        tokens = table.tokens(hits)
        made.append(
            Price(
                capacity=capacity,
                bytes=block_bytes(
                    decoder, requests.block_size, table.distinct if capacity is None else capacity, dtype
                ),
                hits=int(hits.sum()),
                states_uncached=uncached_states,
                states=uncached_states - int(tokens.sum()),
                macs_uncached=uncached,
                macs=uncached - _sum(saved, tokens),
            )
        )
    return tuple(made)


def block_bytes(decoder: Decoder, block_size: int, blocks: int, dtype: str = "bf16") -> int:
    """Bytes of `blocks` cached blocks: each as a sequence of `block_size` tokens of its own.

    K and V of all its tokens in every layer (of its window at most), and one copy of recurrent state a block.

    >>> from kvtally.core.decoder import lesson
    >>> block_bytes(lesson(), 16, 10)  # 10 * 16 tokens * 2 * 64 * 2
    40960
    """
    return size(decoder, block_size, batch=blocks, dtype=dtype).bytes_held if blocks else 0


class _Known(dict[int, int]):
    """Answers of a function, each worked out once."""

    def __init__(self, answer: Callable[[int], int]) -> None:
        super().__init__()
        self.answer = answer

    def __missing__(self, n: int) -> int:
        self[n] = self.answer(n)
        return self[n]

    def __call__(self, n: int) -> int:
        return self[n]


def _sum(price: Callable[[int], int], lengths: Ints) -> int:
    """The price of all lengths, exactly: each different one priced once."""
    values, times = np.unique(lengths, return_counts=True)
    return sum(n * price(length) for length, n in zip(values.tolist(), times.tolist(), strict=True))


def _work(decoder: Decoder) -> Callable[[Pass], int]:
    """A function that gives all MACs of a pass: each kind of layer counted once, and multiplied by how many."""
    kinds: Counter[Decoder] = Counter()
    for layer in decoder.layers:
        if layer.reads is None:
            kinds[Decoder(hidden_size=decoder.hidden_size, vocab_size=0, layers=(layer,))] += 1
            continue
        donor = decoder.layers[layer.reads]
        both = (donor, replace(layer, reads=0))
        kinds[Decoder(hidden_size=decoder.hidden_size, vocab_size=0, layers=both)] += 1
        kinds[Decoder(hidden_size=decoder.hidden_size, vocab_size=0, layers=(donor,))] -= 1
    outside = replace(decoder, layers=(type(decoder.layers[0])(),))
    parts = [(one, n) for one, n in kinds.items() if n]
    return lambda p: count(outside, (p,)).total + sum(n * count(one, (p,)).total for one, n in parts)
