"""Which side is wrong, where a pass without a cache and one that fills a cache differ: what shorter calls say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvtally.live.measure import measure
from kvtally.live.scenarios import Bench
from kvtally.live.scenarios_steps import SCENARIOS

ODD = "calls of every size on a cache agree with each other: the pass without a cache is the odd one out, not the cache"


def third_opinion(bench: Bench, tolerance: float) -> str:
    """`ODD` where one token at a time, chunks and a full pass that fills a cache all agree; "" where they do not.

    Run it in float64, and only where the full pass that fills a cache differs from the one without. What it does not
    say: that the cached runs are right, only that they are alike.
    """
    adapter = bench.adapter

    def filled(ids: Any, **given: Any) -> Any:
        return adapter.extend(adapter.fresh(), ids, **given)

    other = Bench(adapter=replace(adapter, full=filled), tokens=bench.tokens, seed=bench.seed, ids=bench.ids)
    runs = [measure(other, scenario) for scenario in SCENARIOS if scenario.group == "steps"]
    ran = [run for run in runs if run.steps and not run.refused]
    return ODD if ran and all(run.error <= tolerance for run in ran) else ""
