"""The roofline of `size` as text."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from textwrap import wrap
from typing import Any

from kvtally.core.errors import InputError
from kvtally.core.passes import LONGEST
from kvtally.frontends.render import BOLD, DIM, NARROW, paint, size
from kvtally.frontends.size_question import SizeQuestion
from kvtally.pure.roofline import CACHED, LEFT_OUT, Load, Roofline, roofline, scores_outgrow, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineAnswer:
    """A roofline, and the prompt from which scores outgrow the fast memory that was given."""

    line: Roofline
    fast_memory: int | None = None

    @property
    def outgrown(self) -> int | None:
        """Tokens from which the N x N scores of one head, 2 bytes each, are larger than the fast memory."""
        return None if self.fast_memory is None else scores_outgrow(self.fast_memory)

    def to_dict(self) -> dict[str, Any]:
        return {**self.line.to_dict(), "fast_memory": self.fast_memory, "scores_outgrow_at": self.outgrown}


def asked(q: SizeQuestion, ridge: Fraction, fast_memory: int | None) -> RooflineAnswer:
    """The roofline of a decode step and a prefill of the question's length and batch, on one device for all."""
    if q.devices > 1:
        raise InputError(
            f"`--roofline` is given with `--tensor-parallel-size {q.devices}`, expected one device: "
            "it is that of the whole model"
        )
    if q.tokens >= LONGEST:
        raise InputError(
            f"`--tokens` is {q.tokens:,} with `--roofline`, expected less: a decode step adds one to them, and "
            f"{LONGEST:,} are the most"
        )
    line = roofline(q.decoder, q.tokens, ridge=ridge, batch=q.batch, types=q.types)
    return RooflineAnswer(line=line, fast_memory=fast_memory)


def text(answer: RooflineAnswer, *, on: bool) -> str:
    """The table: FLOPs, bytes moved and FLOPs a byte of each kind of work, in decode and in prefill."""
    line = answer.line
    passes = (
        (f"decode at {line.tokens:,} tokens, batch {line.batch:,}", line.decode),
        (f"prefill of {line.tokens:,} tokens, batch {line.batch:,}", line.prefill),
    )
    parts = [paint(f"roofline, ridge {float(line.ridge):.4g} FLOPs a byte", BOLD, on=on)]
    for title, loads in passes:
        head = f"{title:<38}{'GFLOP':>13}{'moved':>12}{'FLOP/B':>10}"
        parts.append(paint(head, DIM, on=on))
        parts += [_row(x, line.ridge) for x in (*loads, whole(loads))]
    parts += [piece for said in findings(answer) for piece in wrap(said, NARROW, subsequent_indent="  ")]
    parts += [paint(piece, DIM, on=on) for piece in wrap(f"Left out: {LEFT_OUT}.", NARROW)]
    return "\n".join(parts)


def _row(load: Load, ridge: Fraction) -> str:
    name = f"{load.work} over the cache" if load.work in CACHED else load.work
    bound = "memory" if load.intensity < ridge else "arithmetic"
    amount = f"{load.flops / 10**9:,.{2 if load.flops < 10**12 else 0}f}"
    return f"  {name:<25}{bound:<11}{amount:>13}{size(load.moved):>12}{_intensity(load.intensity):>10}"


def _intensity(value: Fraction) -> str:
    """Four digits where there are fewer before the point.

    >>> _intensity(Fraction(4)), _intensity(Fraction(272, 3)), _intensity(Fraction(123456))
    ('4.0', '90.7', '123,456')
    """
    return f"{float(value):,.1f}" if value < 10_000 else f"{float(value):,.0f}"


def findings(answer: RooflineAnswer) -> list[str]:
    """From which length or batch on a pass is bound by arithmetic, in sentences."""
    line = answer.line
    never = "at no batch"
    cached = [x for x in line.decode if x.work in CACHED]
    said = []
    if line.batch_projections:
        said.append(f"Decode: weights reach the ridge from batch {line.batch_projections:,}; ")
    else:
        said.append(f"Decode: weights reach the ridge {never}; ")
    said[-1] += f"the whole step {f'from batch {line.batch_whole:,}' if line.batch_whole else never} at this length."
    if cached:
        most = max(x.intensity for x in cached)
        said.append(
            f"Batching moves the projections, never the attention over the cache: {_intensity(most)} FLOP/B at most."
        )
    if line.prefill_whole:
        said.append(f"Prefill is bound by memory below {line.prefill_whole:,} tokens.")
    else:
        said.append("Prefill is bound by memory at every length.")
    if line.cache_outgrows_weights:
        said.append(f"A decode step moves more cache than weights from {line.cache_outgrows_weights:,} tokens on.")
    if answer.outgrown:
        kept = size(answer.fast_memory or 0)
        said.append(f"The N x N scores of one head, 2 bytes each, outgrow {kept} from {answer.outgrown:,} tokens on.")
    return said
