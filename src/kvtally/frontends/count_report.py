"""The answer of `count` as a report."""

from __future__ import annotations

from collections.abc import Sequence

from kvtally.frontends.evidence import Evidence
from kvtally.frontends.question import Answer
from kvtally.frontends.render import EXACT, LENGTHS, by_length, conditions, evidence_lines, notes, ratio, shown
from kvtally.frontends.report import Bars, Group, Report
from kvtally.frontends.table import TITLES, Section, sections


def report(
    answers: Sequence[Answer], evidence: Evidence | None, *, by: str | None, many: bool, command: Sequence[str]
) -> Report:
    """The report of one answer, or of several lengths where `many`; every number exact."""
    first = answers[0]
    names = (first.left.name, first.right.name)
    if many:
        heads: Sequence[str] = LENGTHS[1:]
        groups = [Group(title="new tokens", rows=by_length(answers))]
        rows = [(f"{a.question.new:,} new tokens", a.left.tally.total, a.right.tally.total) for a in answers]
    else:
        parts = sections(first, by)
        heads = (*names, "ratio")
        groups = [_group(part) for part in parts]
        rows = [(r.label, r.left, r.right) for part in parts for r in part.rows if r.label.startswith("multipl")]
        rows = rows or [("multiplications", first.left.tally.total, first.right.tally.total)]
    return Report(
        title=TITLES[first.question.kind][0],
        about=conditions(first.question, f"prompt {first.question.prompt:,}" if many else ""),
        command=command,
        bars=Bars(names=names, rows=rows),
        heads=heads,
        groups=groups,
        notes=[
            " ".join(lines)
            for lines in (
                evidence_lines(evidence, on=False) if evidence else [],
                notes(first, None, on=False, shortened=False),
            )
        ],
    )


def _group(part: Section) -> Group:
    rows = [(r.label, shown(r, EXACT, 0), shown(r, EXACT, 1), ratio(r.left, r.right)) for r in part.rows]
    return Group(title=part.title, rows=rows)
