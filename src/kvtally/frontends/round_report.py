"""The answer of `round` as a web page: its tables, the error by layer and head, and by position."""

from __future__ import annotations

from collections.abc import Sequence

from kvtally.core.rounded import Rounded, Stored
from kvtally.frontends.report import Bars, Group, Heat, Report
from kvtally.frontends.round_question import COMPARISON, RoundAnswer, Row
from kvtally.frontends.round_text import KEPT, OUTPUT, TITLE, about, kept, notes, outliers, output

MILLIONTHS = 1_000_000


def page(answer: RoundAnswer, command: Sequence[str]) -> Report:
    """The report; pictures show the last type of `rows`, which is the coarsest where they are named in that order."""
    shown = answer.rows[-3:] if len(answer.rows) > 2 else answer.rows
    coarse = shown[0]
    heads = OUTPUT[1:]
    groups = [Group(title="the output, against an exact cache", rows=output(answer.rows))]
    if answer.compared:
        groups.append(Group(title=COMPARISON, rows=output(answer.compared)))
    blank = ("",) * (len(heads) - len(KEPT) + 1)
    groups.append(Group(title=", ".join(["what is kept", *KEPT[1:]]), rows=[(*r, *blank) for r in kept(answer.rows)]))
    if channels := outliers(answer):
        rows = [(*row, *("",) * (len(heads) - 2)) for row in channels]
        groups.append(Group(title="channels of K: times the median of their head, share of its error", rows=rows))
    return Report(
        title=TITLE,
        about=about(answer),
        command=command,
        bars=_by_position(coarse),
        heads=heads,
        groups=groups,
        notes=[*notes(answer), *(f"{name}: {value}" for name, value in answer.conventions.items())],
        heats=_heats(coarse),
    )


def _by_position(row: Row) -> Bars:
    """The error of K and of V along the text, in millionths."""
    r = row.rounded
    return Bars(
        names=(f"error of K as {r.k}, millionths, by position", f"error of V as {r.v}, millionths"),
        rows=[(f"from {s.start:,}", round(MILLIONTHS * s.k), round(MILLIONTHS * s.v)) for s in r.stretches],
    )


def _heats(row: Row) -> list[Heat]:
    """A table for each part that was rounded: its error by layer and head."""
    r = row.rounded
    parts = dict.fromkeys(s.part for s in r.stored)
    names = {"k": f"K as {r.k}", "v": f"V as {r.v}"}
    return [_heat(names.get(part, part), part, r) for part in parts]


def _heat(name: str, part: str, r: Rounded) -> Heat:
    found = [s for s in r.stored if s.part == part]
    many = max(len(s.heads) for s in found)
    most = max((e for s in found for e in s.heads), default=0.0) or 1.0
    return Heat(
        title=f"Error of {name}, by layer and head",
        heads=[f"head {k}" for k in range(many)],
        rows=[(f"layer {s.layer}", _cells(s, most)) for s in found],
    )


def _cells(stored: Stored, most: float) -> list[tuple[str, float]]:
    return [(f"{error:.1e}", error / most) for error in stored.heads]
