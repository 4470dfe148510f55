"""Two sets of logits, reduced to figures as they come: KL divergence, choices, perplexity, differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch

from kvtally.core.agreement import Step
from kvtally.live.measure import largest_logit

LOGITS = 2**19  # logits that are reduced at a time, in float64: 4 MiB, which a processor keeps close


@dataclass(slots=True, eq=False)
class Exact:
    """The exact side of one call, made once for every rounded side: logits, probabilities, the best two tokens."""

    start: int
    logits: Any  # (rows, vocabulary)
    chances: Any
    norms: Any  # (rows,)
    scale: float  # the largest logit
    best: Any
    following: Any  # the next token id of each row of the text that has one


def exact(start: int, logits: Any, following: Any) -> Exact:
    """What every rounded side is compared with, of logits (rows, vocabulary) from position `start` on."""
    best = logits.topk(min(2, logits.shape[-1]))
    chances = torch.empty_like(logits, dtype=torch.float64)
    norms = chances.new_empty(len(logits))
    for at in _blocks(logits):
        sums, norms[at] = _powers(chances[at], logits[at], best.values[at, 0])
        chances[at].div_(sums[:, None])
    return Exact(
        start=start,
        logits=logits,
        chances=chances,
        norms=norms,
        scale=largest_logit(logits),
        best=best,
        following=following,
    )


def _blocks(logits: Any) -> list[slice]:
    """Rows that are reduced at a time."""
    size = max(1, LOGITS // logits.shape[1])
    return [slice(k, min(k + size, len(logits))) for k in range(0, len(logits), size)]


def _powers(into: Any, logits: Any, top: Any) -> tuple[Any, Any]:
    """Sums of exp(logit - top) of each row, which `into` takes, in float64, and the logs of the sums of exp(logit)."""
    sums = into.copy_(logits).sub_(top[:, None]).exp_().sum(-1)
    return sums, sums.log() + top


def _gaps(into: Any, a: Any, b: Any) -> Any:
    """a - b in float64, 0 where both are the same infinity; made in `into`."""
    into.copy_(a).sub_(b)
    return into if isfinite(float(into.sum())) else into.masked_fill_(a == b, 0.0)


@dataclass(slots=True, eq=False)
class Figures:
    """Sums over the positions so far, and a value for each of them."""

    same: bool = True
    scale: float = 0.0
    total_abs: float = 0.0
    logits: int = 0
    steps: list[Step] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    nll: float = 0.0
    nll_exact: float = 0.0
    predicted: int = 0

    def add(self, left: Exact, right: Any) -> None:
        """Takes in the rounded logits (rows, vocabulary) of one call."""
        self.scale = max(self.scale, left.scale)
        blocks = _blocks(right)
        room = left.chances.new_empty(2, blocks[0].stop, right.shape[1])  # made once: memory is dear when it is new
        for at in blocks:
            self._rows(left, at, right[at], *room[:, : at.stop - at.start])

    def _rows(self, left: Exact, at: slice, right: Any, gap: Any, work: Any) -> None:
        exactly, chances = left.logits[at], left.chances[at]
        top = right.amax(-1)
        _, norms = _powers(work, right, top)
        gap = _gaps(gap, exactly, right)
        terms = torch.mul(chances, gap, out=work).sum(-1)
        if not isfinite(float(terms.sum())):
            terms = work.masked_fill_(chances == 0, 0.0).sum(-1)
        self.kl += (terms + norms - left.norms[at]).clamp(min=0).tolist()  # -1e-17
        following = left.following[at]
        for name, table, sums in (("nll_exact", exactly, left.norms[at]), ("nll", right, norms)):
            own = table[: len(following)].gather(1, following[:, None])[:, 0]
            setattr(self, name, getattr(self, name) + float((sums[: len(following)] - own).sum()))
        self.predicted += len(following)
        best, choice = left.best.values[at], left.best.indices[at, 0]
        held = right.gather(1, choice[:, None])[:, 0] == top  # of a tie, the exact choice
        other = choice if bool(held.all()) else torch.where(held, choice, right.argmax(-1))
        sizes = gap.abs_()
        self.total_abs += float(sizes.sum())
        self.logits += sizes.numel()
        largest = sizes.amax(-1).tolist()
        self.same &= not any(largest)
        found = zip(largest, choice.tolist(), other.tolist(), (best[:, 0] - best[:, -1]).tolist(), strict=True)
        self.steps += [
            Step(position=left.start + at.start + n, max_abs=g, token_left=t, token_right=o, margin=m)
            for n, (g, t, o, m) in enumerate(found)
        ]

    @property
    def largest(self) -> float:
        """The largest |difference| of a logit."""
        return max((s.max_abs for s in self.steps), default=0.0)

    def percentile(self, share: float) -> float:
        """The smallest KL divergence that at least `share` of the positions stay at or below.

        >>> Figures(kl=[0.1, 0.2, 0.4, 0.3]).percentile(0.75)
        0.3
        """
        ordered = sorted(self.kl)
        return ordered[max(0, -(-len(ordered) * round(1000 * share) // 1000) - 1)]

    def perplexity(self, nll: float) -> float:
        """exp of the mean negative log-likelihood of the text's next tokens; 0 where there is none."""
        return float(torch.tensor(nll / self.predicted, dtype=torch.float64).exp()) if self.predicted else 0.0
