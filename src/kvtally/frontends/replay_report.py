"""The answer of `replay` as a web page."""

from __future__ import annotations

from collections.abc import Sequence

from kvtally.frontends.replay_plot import curve, depths
from kvtally.frontends.replay_question import ReplayAnswer
from kvtally.frontends.replay_text import TITLE, about, duration, first_lines, percent, sections
from kvtally.frontends.report import Bars, Heat, Report
from kvtally.traffic.why import TTLS

GRID = "Blocks hit by the size of the cache, and by how long blocks that nobody asks for are kept"


def page(answer: ReplayAnswer, command: Sequence[str]) -> Report:
    """The report: the five lines, hits by memory, the curve, where prompts differ, and every table."""
    return Report(
        title=TITLE,
        about=[about(answer), *(f"{label}: {said}" for label, said in first_lines(answer))],
        command=command,
        bars=Bars(
            names=("blocks hit", "blocks asked for"),
            rows=[(f"{p.blocks:,} blocks", p.hits, answer.why.accesses) for p in answer.points],
        ),
        heads=(),
        groups=(),
        notes=answer.notes,
        pictures=[curve(answer), depths(answer)],
        heats=[_grid(answer), *(_plain(title, rows) for title, rows in sections(answer))],
    )


def _plain(title: str, rows: Sequence[Sequence[str]]) -> Heat:
    """A table without shades; its first row is its head."""
    (corner, *heads), *body = rows
    return Heat(
        title=title, corner=corner, heads=heads, rows=[(name, [(text, 0.0) for text in cells]) for name, *cells in body]
    )


def _grid(answer: ReplayAnswer) -> Heat:
    """Hit shares at each capacity of the table, for each time a block is kept; a dropped block's place stays taken."""
    points, accesses = {p.blocks: p for p in answer.points}, answer.why.accesses
    rows: list[tuple[str, list[tuple[str, float]]]] = []
    asked = answer.question.ttl
    for ttl in (*sorted({*TTLS, *([asked] if asked else [])}), None):
        found = answer.table.curve(ttl=ttl, min_prefix=answer.question.min_prefix)
        hits = [int(found[min(blocks, len(found) - 1)]) for blocks in points]
        label = "for ever" if ttl is None else duration(ttl)
        rows.append((label, [(percent(n, accesses), n / accesses if accesses else 0.0) for n in hits]))
    return Heat(title=GRID, corner="kept", heads=[f"{blocks:,} blocks" for blocks in points], rows=rows)
