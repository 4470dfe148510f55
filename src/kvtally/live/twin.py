"""The tiny twin of a big model, its config shrunk, in every scenario; then cheap scenarios on the real weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvtally.core.agreement import Agreement, Report
from kvtally.live.check import check
from kvtally.live.harness import build
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk_config

CHEAP = "power,steps"  # groups that cost a few passes over one prompt: run on the real weights
TWIN, REAL = "tiny twin", "real weights"


def twin(config: Any) -> Any:
    """A tiny float32 model of the same class as `config` describes, every kind of its layers in it, on the CPU.

    Random weights, the same in every run, large enough that every token matters. `config` is left as it is.
    """
    return scaled(build(shrunk_config(config), device="cpu", dtype="float32"))


def check_with_twin(model: Any, ids: Any = None, *, cheap: str | Iterable[str] = CHEAP, **options: Any) -> Report:
    """The Report of both: every scenario on the tiny twin of a transformers model, `cheap` ones on the model itself.

    Each scenario's name ends in which of the two it ran on. `ids` are the model's own tokens and go to the
    model only; `options` are those of `check`, and both are given them. What the twin cannot show: values that
    occur in the real weights alone, such as an overflow.
    """
    small = check(twin(model.config), **options)
    real = check(model, ids, **options | {"scenarios": cheap})
    return replace(real, agreements=(*_on(TWIN, small.agreements), *_on(REAL, real.agreements)))


def _on(which: str, agreements: Iterable[Agreement]) -> list[Agreement]:
    return [replace(a, scenario=f"{a.scenario} ({which})") for a in agreements]
