"""The closed count against another road: executed in plain Python, or traced in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.core.tally import Comparison, compare
from kvtally.frontends.question import Question
from kvtally.pure.count_closed import count

SMALL = "a small copy"
TOLERANCE = 1e-9  # outputs are of order 1 and float64; a sum of some thousand terms rounds below 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What came of counting again by `road`: for each side a comparison of every cell.

    `on` says what was run. `difference` is the largest one between the outputs of both sides (None
    where outputs are not compared), `tolerance` what counts as equal.
    """

    road: str
    on: str
    comparisons: tuple[tuple[str, Comparison], ...]
    difference: float | None = None
    tolerance: float = TOLERANCE

    @property
    def agree(self) -> bool:
        same = self.difference is None or self.difference <= self.tolerance
        return same and all(comparison.agree for _, comparison in self.comparisons)

    @property
    def cells(self) -> int:
        return sum(comparison.cells for _, comparison in self.comparisons)

    def to_dict(self) -> dict[str, Any]:
        return {
            "road": self.road,
            "on": self.on,
            "agree": self.agree,
            "output_difference": self.difference,
            "output_tolerance": self.tolerance,
            "sides": [{"name": name, **comparison.to_dict()} for name, comparison in self.comparisons],
        }


def small_copy(question: Question) -> Question:
    """The same question of the same pattern of layers with small sizes, and few tokens."""
    return replace(
        question,
        decoder=question.decoder.shrunk(),
        prompt=min(question.prompt, 4),
        new=min(question.new, 20),
    )


def executed(question: Question) -> Evidence:
    """Both sides run in plain Python: on the decoder itself where that is at most 10^8 MACs, else shrunk."""
    from kvtally.pure.count_executed import MOST_MACS

    lists = question.sides()
    most = max(count(question.decoder, passes, kernel=question.kernel).total for _, passes in lists)
    if most <= MOST_MACS:
        return _execute(question, "the decoder as it is")
    small = question.decoder.shrunk()
    try:
        return _execute(replace(question, decoder=small), f"{SMALL} ({describe(small)})")
    except InputError as refused:
        raise InputError(f"even for {SMALL}, {refused.problem}", hint="ask for fewer tokens") from None


def executed_small(question: Question) -> Evidence:
    """Both sides of a small copy of the question run in plain Python."""
    small = small_copy(question)
    return _execute(small, SMALL)


def _execute(question: Question, on: str) -> Evidence:
    from kvtally.pure.count_executed import execute, largest_difference

    comparisons, runs = [], []
    for name, passes in question.sides():
        run = execute(question.decoder, passes, kernel=question.kernel)
        comparisons.append((name, compare(count(question.decoder, passes, kernel=question.kernel), run.tally)))
        runs.append(run)
    return Evidence(road="executed", on=on, comparisons=tuple(comparisons), difference=largest_difference(*runs))


def traced(question: Question, config: Mapping[str, Any]) -> Evidence:
    """Both sides run on the transformers model that `config` describes, on the meta device."""
    if question.kernel != "dense" or question.loop != "forward":
        raise InputError(
            f"`kernel` is {question.kernel!r} and `uncached` is {question.loop!r}, expected 'dense' and 'forward': "
            "that is what PyTorch runs",
            hint="leave both options out with --against traced",
        )
    from kvtally.live import count_traced, harness
    from kvtally.live.refusal import refused

    comparisons = []
    with refused(harness.UNRUN, where="--against traced", hint="count with --against executed instead"):
        model = harness.build(config, device="meta", attention="eager")  # others look at values of the mask
        calls = harness.convention(model, source=count_traced.source(question.decoder))
        copies = harness.copies_kept(model)
        for name, passes in question.sides():
            run = harness.as_run(model, passes, calls=calls)
            closed = count(question.decoder, run, kernel="dense")
            kept = replace(closed, kv={cell: copies * n for cell, n in closed.kv.items()})
            comparisons.append((name, compare(kept, count_traced.trace(model, run, question.decoder, calls=calls))))
    on = "the transformers model on the meta device"
    if copies > 1:
        on += f", which keeps {copies} copies of K and V, one for each query head: compared with as many"
    return Evidence(road="traced", on=on, comparisons=tuple(comparisons))


def describe(decoder: Decoder) -> str:
    """Layers and width, for people."""
    layers = len(decoder.layers)
    return f"{layers:,} layer{'s' if layers > 1 else ''}, hidden {decoder.hidden_size:,}"
