"""Edit: a wrong tail is cropped, a prompt changes in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from kvtally.live.scenarios import Bench, Pair, Scenario, cut, follow

Fresh = Callable[[Bench], Any]


def _growing(bench: Bench) -> Any:
    return bench.need("fresh")()


def _recording(bench: Bench) -> Any:
    return bench.need("recording")()


def _static(bench: Bench) -> Any:
    return bench.need("static")(bench.tokens)


def _tail(name: str, fresh: Fresh, sizes: Callable[[int], tuple[int, int]], calls: int = 1) -> Scenario:
    """`sizes(tokens)` are kept tokens and the wrong ones after them, fed in `calls` calls, then cropped."""

    def run(bench: Bench) -> Iterator[Pair]:
        kept, wrong = sizes(bench.tokens)
        ids, other = bench.prompt(), bench.prompt(1)
        cache = fresh(bench)
        bench.need("crop")
        yield from follow(bench, cache, ids, [kept])
        for start, size in _parts(kept, wrong, calls):
            bench.extend(cache, other[:, start : start + size])
        cache = bench.crop(cache, wrong)
        yield from follow(bench, cache, ids, cut([1, 3, 1, 1, bench.tokens], bench.tokens - kept), start=kept)

    return Scenario(name=name, group="edit", run=run)


def _parts(start: int, total: int, calls: int) -> list[tuple[int, int]]:
    """(start, size) of so many calls over `total` tokens from `start`."""
    bounds = [start + total * k // calls for k in range(calls + 1)]
    return [(a, b - a) for a, b in pairwise(bounds) if b > a]


def _middle(name: str, fresh: Fresh) -> Scenario:
    """A whole prompt is held; it changes from its first third on, and the rest comes as one chunk."""

    def run(bench: Bench) -> Iterator[Pair]:
        edit, ids = max(1, bench.tokens // 3), bench.prompt()
        before = ids.clone()
        before[:, edit:] = bench.prompt(1)[:, edit:]
        cache = fresh(bench)
        bench.need("crop")
        bench.first(ids)
        bench.extend(cache, before)
        cache = bench.crop(cache, bench.tokens - edit)
        yield from follow(bench, cache, ids, [bench.tokens - edit], start=edit)

    return Scenario(name=name, group="edit", run=run)


def _small(n: int) -> tuple[int, int]:
    return max(1, n // 12), max(1, n // 12)


def _large(n: int) -> tuple[int, int]:
    return max(1, n // 2), max(1, n // 4)


SCENARIOS = (
    _tail("crop below a window", _growing, _small),
    _tail("crop beyond a window", _growing, _large),
    _tail("crop below a window, past recorded", _recording, _small),
    _tail("crop beyond a window, past recorded", _recording, _large),
    _tail("crop after steps, past recorded", _recording, _large, calls=3),
    _tail("static crop below a window", _static, _small),
    _tail("static crop", _static, _large),
    _middle("edit in the middle", _growing),
    _middle("edit in the middle, past recorded", _recording),
    _middle("edit in the middle, static", _static),
)
