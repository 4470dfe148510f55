"""Padding: a left-padded batch of unequal prompts against each of them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kvtally.live.scenarios import Bench, Pair, Scenario, cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded:
    """Unequal prompts in one batch: ids, a mask that is 0 over the padding, where rows begin, the first position."""

    ids: Any
    mask: Any
    starts: tuple[int, ...]
    first: int

    def given(self, start: int, end: int, *, explicit: bool) -> dict[str, Any]:
        """The mask of everything up to `end`, and the position ids of `start` to `end` where they are explicit."""
        counted = (self.mask.cumsum(1) - 1).clamp(min=0) + self.first
        return {"mask": self.mask[:, :end], **({"positions": counted[:, start:end]} if explicit else {})}

    def real(self, left: Any, right: Any, start: int, end: int) -> Any:
        """`left` where a token counts and `right` where it is padding: padding is never compared."""
        return torch.where(self.mask[:, start:end, None].bool(), left, right)


def padded(bench: Bench) -> Padded:
    """Three prompts of all, two thirds and a quarter of the tokens; the padding is the first token of its row."""
    bench.takes("mask")
    n = bench.tokens
    starts = (0, n - max(1, 2 * n // 3), n - max(1, n // 4))
    ids, mask = bench.rows(3).clone(), torch.ones(3, n, dtype=torch.long, device=bench.adapter.device)
    for row, start in enumerate(starts):
        ids[row, start:] = ids[row, : n - start].clone()
        ids[row, :start] = ids[row, start]
        mask[row, :start] = 0
    return Padded(ids=ids, mask=mask, starts=starts, first=bench.adapter.first)


def alone(bench: Bench, batch: Padded) -> Any:
    """The logits of each prompt alone, where the batch has them; 0 over the padding."""
    found = [bench.full(batch.ids[row : row + 1, start:]) for row, start in enumerate(batch.starts)]
    return torch.cat([torch.nn.functional.pad(f, (0, 0, batch.ids.shape[1] - f.shape[1], 0)) for f in found])


def _full(explicit: bool) -> Callable[[Bench], Iterator[Pair]]:
    def run(bench: Bench) -> Iterator[Pair]:
        if explicit:
            bench.takes("positions")
        batch = padded(bench)
        given = batch.given(0, bench.tokens, explicit=explicit)
        right = bench.again(batch.ids, **given)
        left = batch.real(alone(bench, batch), right, 0, bench.tokens)
        yield Pair(position=0, left=left, right=right)

    return run


def _cached(
    name: str, sizes: Callable[[int], list[int]], *, explicit: bool, fresh: str = "fresh", slack: int = 0
) -> Scenario:
    """Against each prompt alone with explicit positions; with the model's own, against the padded pass uncached."""

    def run(bench: Bench) -> Iterator[Pair]:
        if explicit:
            bench.takes("positions")
        batch = padded(bench)
        everything = batch.given(0, bench.tokens, explicit=explicit)
        whole = alone(bench, batch) if explicit else bench.again(batch.ids, **everything)
        cache = bench.need(fresh)(*([bench.tokens + slack] if fresh == "static" else []))
        start = 0
        for size in cut(sizes(bench.tokens), bench.tokens):
            end = start + size
            right = bench.extend(cache, batch.ids[:, start:end], **batch.given(start, end, explicit=explicit))
            left = batch.real(whole[:, start:end], right, start, end)
            yield Pair(position=start, left=left, right=right)
            start = end

    return Scenario(name=f"{name}, {'explicit' if explicit else 'default'} positions", group="padding", run=run)


def _mostly(n: int) -> list[int]:
    return [n - n // 5]


def _thirds(n: int) -> list[int]:
    return [n - n // 3, 3, 3, 3]


def _halves(n: int) -> list[int]:
    """The first chunk ends within the padding of the shortest row."""
    return [n // 2, n - n // 2]


FULL = "full pass, explicit positions"
FULL_DEFAULT = "full pass, default positions"
SCENARIOS = (
    Scenario(name=FULL, group="padding", run=_full(explicit=True)),
    Scenario(name=FULL_DEFAULT, group="padding", run=_full(explicit=False)),
    *(
        scenario
        for explicit in (True, False)
        for scenario in (
            _cached("prefill, then steps", _mostly, explicit=explicit),
            _cached("prefill, then chunks", _thirds, explicit=explicit),
            _cached("chunked prefill", _halves, explicit=explicit),
            _cached("static, prefill, then steps", _mostly, explicit=explicit, fresh="static"),
            _cached("static with slack, chunks", _thirds, explicit=explicit, fresh="static", slack=5),
        )
    ),
)
