"""Steps: one token, a prompt and then steps, chunks, a conversation; on a growing and on a static cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kvtally.live.adapter import Unsupported
from kvtally.live.scenarios import Bench, Pair, Scenario, cut, follow, untold

RAGGED = (5, 1, 1, 2, 7, 1, 4, 3)  # two early: shorter than most convolutions, longer than a step
SLACK = 5
FEW = 4  # as many steps as a convolution kernel usually is long

Sizes = Callable[[int], list[int]]  # how many tokens each call gets, for so many in all


def _ones(n: int) -> list[int]:
    return [1] * n


def _prefill(n: int) -> list[int]:
    """Here and below: a few calls of the kind, then all the rest at once, so that long prompts stay cheap."""
    return cut([max(1, 3 * n // 8), *[1] * FEW, n], n)


def _short(n: int) -> list[int]:
    return cut([2, *[1] * FEW, n], n)


def _threes(n: int) -> list[int]:
    return cut([*[3] * FEW, n], n)


def _ragged(n: int) -> list[int]:
    return cut([*RAGGED, n], n)


def _only_ragged(n: int) -> list[int]:
    """Here and below: no rest, as what a call is told is the same in all of them."""
    return cut(RAGGED, min(n, sum(RAGGED)))


def _only_prefill(n: int) -> list[int]:
    sizes = [max(1, 3 * n // 8), *[1] * FEW, RAGGED[0]]
    return cut(sizes, min(n, sum(sizes)))


def _turns(n: int) -> list[int]:
    """A prompt, an answer token by token, the next question at once, the next answer."""
    quarter = max(1, n // 4)
    return cut([quarter + 1, *[1] * min(FEW, quarter - 1), quarter + 2, *[1] * FEW, n], n)


def masks(bench: Bench, rows: int = 1) -> Callable[[int, int], Mapping[str, Any]]:
    """A mask of ones over all tokens so far."""
    bench.takes("mask")
    return lambda _start, end: {"mask": torch.ones(rows, end, dtype=torch.long, device=bench.adapter.device)}


def positions(bench: Bench, rows: int = 1) -> Callable[[int, int], Mapping[str, Any]]:
    """Position ids of the tokens of the call."""
    bench.takes("positions")
    first, device = bench.adapter.first, bench.adapter.device
    return lambda start, end: {
        "positions": torch.arange(first + start, first + end, device=device).expand(rows, end - start)
    }


def _told(bench: Bench) -> Callable[[int, int], Mapping[str, Any]]:
    """Both."""
    mask, place = masks(bench), positions(bench)
    return lambda start, end: {**mask(start, end), **place(start, end)}


def _nothing(_bench: Bench) -> Callable[[int, int], Mapping[str, Any]]:
    return untold


def _growing(name: str, sizes: Sizes, told: Callable[[Bench], Any] = _nothing) -> Scenario:
    def run(bench: Bench) -> Iterator[Pair]:
        return follow(bench, bench.need("fresh")(), bench.prompt(), sizes(bench.tokens), given=told(bench))

    return Scenario(name=name, group="steps", run=run)


def _static(name: str, sizes: Sizes, slack: int, told: Callable[[Bench], Any] = _nothing) -> Scenario:
    def run(bench: Bench) -> Iterator[Pair]:
        cache = bench.need("static")(bench.tokens + slack)
        return follow(bench, cache, bench.prompt(), sizes(bench.tokens), given=told(bench))

    return Scenario(name=name, group="static", run=run)


def _past_window(name: str, sizes: Callable[[int, int], list[int]]) -> Scenario:
    """As many tokens as two windows of the largest size, and some."""

    def run(bench: Bench) -> Iterator[Pair]:
        if not bench.adapter.windows:
            raise Unsupported(f"{bench.adapter.name} has no window")
        window = max(bench.adapter.windows)
        if window + 2 > bench.tokens:
            raise Unsupported(f"a window of {window:,} is not passed by {bench.tokens:,} tokens; ask for more tokens")
        cache = bench.need("fresh")()
        return follow(bench, cache, bench.prompt(), cut(sizes(bench.tokens, window), bench.tokens))

    return Scenario(name=name, group="window", run=run)


SCENARIOS = (
    _growing("one token at a time", _ones),
    _growing("prefill, then steps", _prefill),
    _growing("prompt shorter than a convolution kernel", _short),
    _growing("chunks of 3", _threes),
    _growing("ragged chunks", _ragged),
    _growing("conversation, full-length masks", _turns, masks),
    _growing("explicit position ids", _only_prefill, positions),
    _growing("mask and position ids", _only_ragged, _told),
    _static("exact length, one token at a time", _ones, 0),
    _static("exact length, prefill, then steps", _prefill, 0),
    _static("with slack, chunks of 3", _threes, SLACK),
    _static("with slack, ragged chunks", _ragged, SLACK),
    _static("with slack, conversation, full-length masks", _turns, SLACK, masks),
    _past_window("prompt just fills the window, then steps", lambda _n, w: [w]),
    _past_window("prompt one short of the window, then steps", lambda _n, w: [w - 1]),
    _past_window("prompt longer than the window, then steps", lambda _n, w: [w + 1]),
    _past_window("a chunk that crosses the window", lambda _n, w: [w // 2 + 1, w]),
    _past_window("two long chunks", lambda n, _w: [n // 2, n - n // 2]),
)
