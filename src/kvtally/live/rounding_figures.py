"""Two sets of logits, reduced to figures as they come: KL divergence, choices, perplexity, differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from kvtally.core.agreement import Step

ROWS = 32  # rows of logits that are reduced at a time, in float64


@dataclass(slots=True, eq=False)
class Exact:
    """The exact side of one call, made once for every rounded side: logits, log-probabilities, the best two tokens."""

    start: int
    logits: Any  # (rows, vocabulary)
    logs: Any
    chances: Any
    scale: float  # the largest logit
    best: Any
    following: Any  # the next token id of each row of the text that has one


def exact(start: int, logits: Any, following: Any) -> Exact:
    """What every rounded side is compared with, of logits (rows, vocabulary) from position `start` on."""
    best = logits.topk(min(2, logits.shape[-1]))
    logs = logits.double().log_softmax(-1)
    scale = float(logits.masked_fill(~logits.isfinite(), 0.0).abs().max())
    return Exact(start=start, logits=logits, logs=logs, chances=logs.exp(), scale=scale, best=best, following=following)


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
        for k in range(0, len(right), ROWS):
            self._rows(left, k, right[k : k + ROWS])

    def _rows(self, left: Exact, k: int, right: Any) -> None:
        end = k + len(right)
        a, logs = left.logits[k:end], left.logs[k:end]
        right_logs = right.double().log_softmax(-1)
        equal = a == right
        gap = (a - right).abs().masked_fill(equal, 0.0)
        self.same &= bool(equal.all())
        self.total_abs += float(gap.sum(dtype=torch.float64))
        self.logits += gap.numel()
        terms = left.chances[k:end] * (logs - right_logs)
        self.kl += terms.masked_fill(logs == right_logs, 0.0).sum(-1).clamp(min=0).tolist()  # -inf twice, and -1e-17
        following = left.following[k:end]
        for name, table in (("nll_exact", logs), ("nll", right_logs)):
            own = table[: len(following)].gather(1, following[:, None])
            setattr(self, name, getattr(self, name) - float(own.sum()))
        self.predicted += len(following)
        best, tokens = left.best.values[k:end], left.best.indices[k:end, 0].tolist()
        other = right.argmax(-1)
        other = torch.where(right.gather(1, left.best.indices[k:end, :1])[:, 0] == right.amax(-1),
                            left.best.indices[k:end, 0], other)  # fmt: skip
        margins = (best[:, 0] - best[:, -1]).tolist()
        found = zip(gap.amax(-1).tolist(), tokens, other.tolist(), margins, strict=True)
        self.steps += [
            Step(position=left.start + k + n, max_abs=g, token_left=t, token_right=o, margin=m)
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
