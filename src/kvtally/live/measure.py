"""The difference between the two sides of a scenario, position by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch

from kvtally.core.agreement import Step
from kvtally.core.errors import InputError
from kvtally.live.adapter import Unsupported
from kvtally.live.raised import Crashed
from kvtally.live.scenarios import Bench, Pair, Scenario


@dataclass(slots=True, kw_only=True)
class Measured:
    """max |a - b|, max |logits|, whether all bits are equal, a Step a position, and why it ended early, if it did.

    `refused` is what the model or its cache said, `crashed` whether it fell over without saying so.
    """

    largest: float = 0.0
    scale: float = 0.0
    equal: bool = True
    steps: list[Step] = field(default_factory=list)
    where: str = ""
    refused: str = ""
    crashed: bool = False
    noted: str = ""

    @property
    def error(self) -> float:
        """max |a - b| / max |logits|; 0 where both are all zeros."""
        return self.largest / self.scale if self.largest and self.scale else self.largest


def measure(bench: Bench, scenario: Scenario) -> Measured:
    """Runs one scenario to its end.

    What the model or its cache raises ends the scenario, and is `refused`: its message, file and line. Any other
    error is one of the scenario itself, and is not caught.
    """
    found = Measured()
    pairs = _started(bench, scenario)
    while (pair := _next(pairs, found)) is not None:
        add(found, pair)
    found.noted = "; ".join(dict.fromkeys(bench.notes))
    bench.notes.clear()
    return found


def _started(bench: Bench, scenario: Scenario) -> Iterator[Pair]:
    """The pairs of a scenario; what it asks for first is asked for with the first pair."""
    yield from scenario.run(bench)


def _next(pairs: Iterator[Pair], found: Measured) -> Pair | None:
    try:
        return next(pairs, None)
    except (Unsupported, Crashed) as raised:
        found.refused, found.crashed = str(raised), isinstance(raised, Crashed)
    return None


def add(found: Measured, pair: Pair) -> None:
    """Takes the differences of one pair into `found`."""
    left, right = pair.left.detach(), pair.right.detach()
    if left.shape != right.shape:
        raise InputError(f"logits of shape {tuple(right.shape)} with the cache, expected {tuple(left.shape)}")
    gap = (left.double() - right).abs_()
    found.scale = max(found.scale, largest_logit(left))
    if not isfinite(float(gap.sum())):
        gap = gap.masked_fill_(left == right, 0.0).nan_to_num_(nan=torch.inf)
    worst = gap.amax(-1).max(0)  # of the rows of a batch (batch, n)
    at = worst.indices, torch.arange(left.shape[1], device=left.device)
    mine, other = left[at], right[at]
    best = mine.topk(min(2, left.shape[-1])).values
    told = worst.values, mine.argmax(-1), other.argmax(-1), best[:, 0] - best[:, -1]
    found.steps += [
        Step(position=pair.position + k, max_abs=value, token_left=one, token_right=two, margin=margin)
        for k, (value, one, two, margin) in enumerate(zip(*(t.tolist() for t in told), strict=True))
    ]
    largest = float(worst.values.max())
    found.equal &= largest == 0
    found.largest = max(found.largest, largest)


def largest_logit(logits: Any) -> float:
    """The largest |logit| that is finite."""
    low, high = logits.aminmax()
    if isfinite(found := max(-float(low), float(high))):
        return found
    return float(logits.masked_fill(~logits.isfinite(), 0.0).abs().max())


def not_finite(bench: Bench) -> str:
    """Where the first NaN of a plain pass comes from, in words: the module, and the position; empty where none is."""
    logits = bench.full(bench.prompt())
    bad = logits.isnan().any(-1).any(0)
    if not bad.any():
        return ""
    said = f"logits without a cache are NaN from position {int(bad.nonzero()[0])} on"
    if bench.adapter.model is None:
        return said
    seen: list[str] = []
    handles = [m.register_forward_hook(_nan_hook(name, seen)) for name, m in bench.adapter.model.named_modules()]
    try:
        bench.again(bench.prompt())
    finally:
        for handle in handles:
            handle.remove()
    return f"{said}, first out of `{seen[0]}`" if seen else said


def _nan_hook(name: str, seen: list[str]) -> Callable[[Any, Any, Any], None]:
    """A hook that changes nothing, and keeps the name of a module whose output has a NaN."""

    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        tensors = output if isinstance(output, tuple | list) else (output,)
        if any(isinstance(t, torch.Tensor) and t.is_floating_point() and bool(t.isnan().any()) for t in tensors):
            seen.append(name)

    return hook
