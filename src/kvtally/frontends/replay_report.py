"""The answer of `replay` as a web page."""

from __future__ import annotations

from collections.abc import Sequence

from kvtally.frontends.replay_question import ReplayAnswer
from kvtally.frontends.replay_text import TITLE, about, duration, first_lines, percent, sections
from kvtally.frontends.report import Bars, Group, Report


def page(answer: ReplayAnswer, command: Sequence[str]) -> Report:
    """The report: hits by memory as bars, the curve, the TTL row, where prompts differ."""
    w = answer.why
    groups = [
        Group(title=title, rows=[(*row, *[""] * (5 - len(row[1:]))) for row in rows])
        for title, rows in sections(answer)
    ]
    ttl = [(duration(s), "", "", percent(hits, w.accesses), "", "") for s, hits in w.within.items()]
    groups.append(Group(title="Where blocks are dropped after so long unused", rows=ttl))
    return Report(
        title=TITLE,
        about=[about(answer), *(f"{label}: {said}" for label, said in first_lines(answer))],
        command=command,
        bars=Bars(
            names=("blocks hit", "blocks asked for"),
            rows=[(f"{p.blocks:,} blocks", p.hits, w.accesses) for p in answer.points],
        ),
        heads=("",) * 5,
        groups=groups,
        notes=answer.notes,
    )
