"""The table of `round --dial`: every precision of K, V and both, on the embedded decoder."""

from __future__ import annotations

from textwrap import wrap

from kvtally.frontends.render import BOLD, DIM, NARROW, coloured, paint
from kvtally.pure.dial import Dial, Effect, effects

TITLE = "What does a cache of lower precision change?"
SIDES = ("K alone", "V alone", "both")
NOTE = (
    "Largest: of all logit differences, by the largest logit. Same: positions whose likeliest token stays. B/token: "
    "K and V of every layer, scales included. Each token is given, whatever was chosen before it. Random weights have "
    "no outlying channels in K; a trained model has: kvtally round MODEL."
)


def as_text(dial: Dial) -> str:
    """The table for a terminal, a line a type."""
    on = coloured()
    wide = max(len(row.dtype) for row in dial.rows) + 2
    heads = [" " * (wide + 7), " " * wide + "B/token"]
    heads[0] += "".join(f"  {side:^14}" for side in SIDES)
    heads[1] += f"  {'largest':>8}  {'same':>4}" * len(SIDES)
    about = f"{dial.decoder}, in plain Python: {dial.positions} positions"
    return "\n".join(
        [
            paint(TITLE, BOLD, on=on),
            paint(about, DIM, on=on),
            "",
            *(paint(head.rstrip(), BOLD, on=on) for head in heads),
            *(
                f"{row.dtype:<{wide}}{row.bytes_per_token:>7,}"
                + "".join(_effect(effect, dial.scale) for effect in effects(row))
                for row in dial.rows
            ),
            "",
            *(paint(line, DIM, on=on) for line in wrap(NOTE, NARROW, break_on_hyphens=False)),
        ]
    )


def _effect(effect: Effect, scale: float) -> str:
    return f"  {effect.largest / scale:>8.1e}  {effect.same:>4}"
