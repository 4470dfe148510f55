"""Batch and reuse: rows reordered, selected, repeated, branched; caches emptied, shared, alive side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kvtally.live.scenarios import Bench, Pair, Scenario, cut, follow

ROWS = 3


def _half(bench: Bench) -> int:
    return max(1, bench.tokens // 2)


def _rest(bench: Bench) -> list[int]:
    return cut([1, 1, 3, 1, bench.tokens], bench.tokens - _half(bench))


def _again(bench: Bench) -> list[int]:
    return cut([max(1, bench.tokens // 3), 1, 1, 3, bench.tokens], bench.tokens)


def _continued(bench: Bench, past: Any, first: int) -> Any:
    """`past` (rows, half) with continuations of other prompts, all different."""
    return torch.cat([past, bench.rows(past.shape[0], first)[:, past.shape[1] :]], 1)


def _moved(name: str, operation: str, rows: list[int]) -> Scenario:
    """A batch of three prompts, `rows` of it kept in that order, each with a new continuation."""

    def run(bench: Bench) -> Iterator[Pair]:
        bench.need(operation)
        half, cache = _half(bench), bench.need("fresh")()
        prompts = bench.rows(ROWS)[:, :half]
        text = _continued(bench, prompts[rows], 5)
        bench.first(text)
        bench.extend(cache, prompts)
        cache = bench.apply(operation, cache, torch.tensor(rows, device=bench.adapter.device))
        yield from follow(bench, cache, text, _rest(bench), start=half)

    return Scenario(name=name, group="batch", run=run)


ORDERS = ([1, 2, 0], [0, 0, 1], [2, 1, 1], [1, 0, 2])


def _beams(bench: Bench) -> Iterator[Pair]:
    """Reordered before every step, as beam search does."""
    bench.need("reorder")
    half, cache = _half(bench), bench.need("fresh")()
    texts = [bench.rows(ROWS)[:, :half]]
    for step, rows in enumerate(ORDERS[: bench.tokens - half]):
        texts.append(torch.cat([texts[-1][rows], bench.rows(ROWS, 5 + step)[:, half + step, None]], 1))
        bench.first(texts[-1])
    bench.extend(cache, texts[0])
    for step, text in enumerate(texts[1:]):
        cache = bench.apply("reorder", cache, torch.tensor(ORDERS[step], device=bench.adapter.device))
        yield from follow(bench, cache, text, [1], start=half + step)


def _repeat(bench: Bench) -> Iterator[Pair]:
    bench.need("repeat")
    half, cache = _half(bench), bench.need("fresh")()
    prompts = bench.rows(2)[:, :half]
    text = _continued(bench, prompts.repeat_interleave(2, 0), 5)
    bench.first(text)
    bench.extend(cache, prompts)
    cache = bench.apply("repeat", cache, 2)
    yield from follow(bench, cache, text, _rest(bench), start=half)


def _branch(fresh: Callable[[Bench], Any]) -> Callable[[Bench], Iterator[Pair]]:
    """A copy goes another way; both go on by turns."""

    def run(bench: Bench) -> Iterator[Pair]:
        branch = bench.need("branch")
        half, cache = _half(bench), fresh(bench)
        past = bench.prompt()[:, :half]
        texts = [_continued(bench, past, which) for which in (5, 6)]
        bench.first(*texts)
        bench.extend(cache, past)
        yield from _by_turns(bench, [cache, branch(cache)], texts, half)

    return run


def _by_turns(bench: Bench, caches: list[Any], texts: list[Any], start: int) -> Iterator[Pair]:
    """Each cache goes on with its own text, one call each by turns."""
    for size in cut([1, 1, 3, 1, bench.tokens], bench.tokens - start):
        for cache, text in zip(caches, texts, strict=True):
            yield from follow(bench, cache, text, [size], start=start)
        start += size


def _two(bench: Bench) -> Iterator[Pair]:
    """Two conversations of equal lengths, alive at once."""
    fresh = bench.need("fresh")
    half, caches, texts = _half(bench), [fresh(), fresh()], [bench.prompt(3), bench.prompt(4)]
    bench.first(*texts)
    for cache, text in zip(caches, texts, strict=True):
        yield from follow(bench, cache, text, [half])
    yield from _by_turns(bench, caches, texts, half)


def _after(bench: Bench) -> Iterator[Pair]:
    """A fresh cache after another prompt of the same length."""
    fresh, half = bench.need("fresh"), _half(bench)
    bench.first(bench.prompt(6))
    bench.extend(fresh(), bench.prompt(5))
    yield from follow(bench, fresh(), bench.prompt(6), cut([half, 1, 1, 3, bench.tokens], bench.tokens))


def _reset(fresh: Callable[[Bench], Any]) -> Callable[[Bench], Iterator[Pair]]:
    """A long prompt, then the emptied cache with another one."""

    def run(bench: Bench) -> Iterator[Pair]:
        bench.need("reset")
        cache = fresh(bench)
        bench.first(bench.prompt(6))
        bench.extend(cache, bench.prompt(5))
        cache = bench.apply("reset", cache)
        yield from follow(bench, cache, bench.prompt(6), _again(bench))

    return run


def _prefix(bench: Bench) -> Iterator[Pair]:
    """One stored prefix serves two prompts one after the other, then goes on itself."""
    branch, half = bench.need("branch"), _half(bench)
    stored = bench.need("fresh")()
    past = bench.prompt()[:, :half]
    texts = [_continued(bench, past, which) for which in (5, 6, 7)]
    bench.first(*texts)
    bench.extend(stored, past)
    for text in texts[:-1]:
        yield from follow(bench, branch(stored), text, _rest(bench), start=half)
    yield from follow(bench, stored, texts[-1], _rest(bench), start=half)


def _grown(bench: Bench) -> Any:
    return bench.need("fresh")()


def _allotted(bench: Bench) -> Any:
    return bench.need("static")(2 * bench.tokens)  # room for both prompts, should the first one stay


SCENARIOS = (
    _moved("reorder", "reorder", [2, 0, 1]),
    _moved("reorder, one row twice", "reorder", [2, 0, 0]),
    Scenario(name="reorder after every step", group="batch", run=_beams),
    _moved("select rows", "batch", [2, 0]),
    _moved("select one row", "batch", [1]),
    Scenario(name="repeat rows", group="batch", run=_repeat),
    Scenario(name="branch, both go on", group="batch", run=_branch(_grown)),
    Scenario(name="static branch, both go on", group="batch", run=_branch(_allotted)),
    Scenario(name="two conversations by turns", group="batch", run=_two),
    Scenario(name="reset, then another prompt", group="reuse", run=_reset(_grown)),
    Scenario(name="static reset, then another prompt", group="reuse", run=_reset(_allotted)),
    Scenario(name="fresh cache after another prompt", group="reuse", run=_after),
    Scenario(name="stored prefix", group="reuse", run=_prefix),
)
