"""Answers as text for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from kvtally.core.decoder import Decoder, lesson
from kvtally.core.tally import Comparison
from kvtally.frontends.as_json import as_json
from kvtally.frontends.evidence import SMALL, Evidence, describe
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.question import ELEMENT_BYTES, Answer, Question, Side
from kvtally.frontends.table import TITLES, Row, sections

NARROW, WIDEST = 75, 100  # columns for prose, and for the table where the terminal has them
LOOPS = {
    "lesson": "all K and V again, the newest query attends",
    "forward": "all tokens again in every layer",
}
KERNELS = {"causal": "the pairs the mask allows", "dense": "the rectangle a kernel multiplies"}
MOST_SHOWN = 20  # cells that differ
EXACT = 10**6  # room for any number
RATIO = 9  # columns of a ratio
LEAST_ROOM = 9  # characters of 999,999 and of 9.999 T with something to spare
ROOM = 15  # characters of 999,999,999,999
PREFIXES = " kMGTPEZYRQ"
BOLD, DIM, GREEN, YELLOW, RED = "1", "2", "32", "33", "31"


def paint(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and code and text else text


def coloured() -> bool:
    """Whether stdout is a terminal that may be coloured."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def number(n: int, room: int) -> str:
    """`n` exactly where it fits in `room` characters, else four digits and a prefix.

    >>> number(62_054_400, 15), number(1_234_567_890_123_456, 15)
    ('62,054,400', '1.235 P')
    """
    exact = f"{n:,}"
    if len(exact) <= room:
        return exact
    power = min((len(str(n)) - 1) // 3, len(PREFIXES) - 1)
    decimals = max(0, 3 - (len(str(n)) - 1 - 3 * power))
    return f"{n / 1000**power:,.{decimals}f} {PREFIXES[power]}"


def size(count: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1.

    >>> size(256), size(25_600)
    ('256 B', '25.0 KiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count / 1024**power:,.1f} {units[power]}" if power else f"{count} B"


def ratio(left: int, right: int) -> str:
    """How many times `right` goes into `left`.

    >>> ratio(5050, 100), ratio(3, 3), ratio(3, 0)
    ('50.5×', 'same', '')
    """
    if left == right:
        return "same"
    if not right or not left:
        return ""
    times = left / right
    return f"{times:,.0f}×" if times >= 1000 else f"{times:.1f}×" if times >= 10 else f"{times:.2f}×"


def as_text(answers: Sequence[Answer], evidence: Evidence | None, *, form: str, by: str | None, many: bool) -> str:
    """The answers in one of the formats: table, json, csv, md. `many`: a table by length."""
    if form == "json":
        return document(answers, evidence, many=many)
    if form == "csv":
        return comma_separated(answers)
    if form == "md":
        return lengths_markdown(answers) if many else markdown(answers[0], evidence, by=by)
    on = coloured()
    if many:
        return lengths_text(answers, on=on, columns=shutil.get_terminal_size((80, 24)).columns)
    return text(answers[0], evidence, by=by, on=on, columns=shutil.get_terminal_size((80, 24)).columns)


def text(answer: Answer, evidence: Evidence | None, *, by: str | None, on: bool, columns: int) -> str:
    """The table for a terminal of `columns`; `on` colours it."""
    parts = sections(answer, by)
    rows = [row for part in parts for row in part.rows]
    widest = max(len(row.label) for row in rows) + 2
    exact = max(len(f"{n:,}") for row in rows if not row.sized for n in (row.left, row.right))
    room = EXACT if widest + 2 * (exact + 2) + RATIO <= min(columns, WIDEST) else ROOM
    column = max(len(shown(row, room, side)) for row in rows for side in (0, 1))
    column = max(column, *(len(side.name) for side in answer.sides))
    lines = heading(answer.question, on=on)
    names = "".join(f"  {side.name:>{column}}" for side in answer.sides)
    lines.append(" " * widest + paint(names, BOLD, on=on))
    for part in parts:
        lines.append(paint(part.title, f"{BOLD};{part.colour}" if part.colour else BOLD, on=on))
        for row in part.rows:
            share = ratio(row.left, row.right)
            times = share and paint(f"{share:>{RATIO}}", part.colour or DIM, on=on)
            values = "".join(f"  {shown(row, room, side):>{column}}" for side in (0, 1))
            strong = BOLD if row.label == "total" else ""
            lines.append(paint(f"  {row.label:<{widest - 2}}{values}", strong, on=on) + times)
    return "\n".join([*lines, "", *notes(answer, evidence, on=on, shortened=room == ROOM)])


def shown(row: Row, room: int, side: int) -> str:
    """One value of a row as text."""
    value = (row.left, row.right)[side]
    return size(value) if row.sized else number(value, room)


def heading(question: Question, *, on: bool, lengths: str = "") -> list[str]:
    """What is asked, and of what."""
    asked = TITLES[question.kind][0]
    return [paint(asked, BOLD, on=on), *(paint(line, DIM, on=on) for line in conditions(question, lengths)), ""]


def conditions(question: Question, lengths: str = "") -> list[str]:
    """Everything the numbers depend on, a line a thing; `lengths` where there are several."""
    lengths = lengths or f"prompt {question.prompt:,}, new {question.new:,}"
    if question.turns:
        lengths = "turns " + ", ".join(f"{user:,}+{new:,}" for user, new in question.turns)
    batch = f" · batch {question.batch:,}" if question.batch > 1 else ""
    loop = [f"without cache: the {question.loop} loop, {LOOPS[question.loop]}"] if question.kind == "cache" else []
    name = question.decoder.name or "decoder"
    about = f"{name}: {_about(question.decoder)} · {lengths}{batch}"
    return [*wrap(about, NARROW), *loop, f"comparisons: {question.kernel}, {KERNELS[question.kernel]}"]


def _about(decoder: Decoder) -> str:
    if decoder == lesson():
        return "1 layer, 1 head, d = 64"
    return describe(decoder)


def notes(answer: Answer, evidence: Evidence | None, *, on: bool, shortened: bool) -> list[str]:
    """What stands under the table: the other road, what is equal, and what is not counted."""
    lines = evidence_lines(evidence, on=on) if evidence else []
    if answer.question.kind == "chunk":
        lines += wrap(_chunks(answer), NARROW)
    units = " G, T, P, E, Z are 10^9 to 10^21; exact: --format json." if shortened else ""
    said = f"1 multiplication = 2 FLOPs.{units} Not counted: {', '.join(answer.left.tally.uncounted)}."
    return [*lines, *(paint(line, DIM, on=on) for line in wrap(said, NARROW, break_on_hyphens=False))]


def _chunks(answer: Answer) -> str:
    left, right = answer.left.tally, answer.right.tally
    a, b = sum(left.cells().values()), sum(right.cells().values())
    more = f"{abs(b - a):,} {'more' if b >= a else 'fewer'} elements are read from the cache"
    if left.macs == right.macs and left.comparisons == right.comparisons:
        return f"Equal work: chunks change no multiplication and no comparison, cell by cell; {more}."
    return f"Chunks change the work by {right.total - left.total:+,} multiplications; {more}."


def evidence_lines(evidence: Evidence, *, on: bool) -> list[str]:
    """`agree: … cells`, or every cell that differs; and how far apart the outputs are."""
    if evidence.agree:
        return [paint(piece, GREEN, on=on) for piece in wrap(_agreement(evidence), NARROW)]
    lines = [line for name, comparison in evidence.comparisons for line in _differing(name, comparison)]
    if evidence.difference is not None and evidence.difference > evidence.tolerance:
        lines.append(f"outputs of both sides differ by {evidence.difference:.1e}, tolerance {evidence.tolerance:g}")
    return [paint(line, RED, on=on) for line in (*lines, f"closed against {evidence.road} on {evidence.on}")]


def _differing(name: str, comparison: Comparison) -> list[str]:
    """The cells of one side that differ, the first MOST_SHOWN of them."""
    if comparison.agree:
        return []
    lines = f"{name}: {comparison}".split("\n")
    more = len(lines) - 1 - MOST_SHOWN
    return [*lines[: 1 + MOST_SHOWN], *([f"  and {more:,} more: --format json lists them all"] if more > 0 else [])]


def _agreement(evidence: Evidence) -> str:
    tolerance = f"{evidence.tolerance:g}".replace("e-0", "e-")
    apart = f"{evidence.difference or 0:.2g} apart, tolerance {tolerance}"
    if evidence.on == SMALL:
        return f"executed on {SMALL}, both loops agree: {apart}"
    said = f"agree: {evidence.cells:,} cells, closed = {evidence.road}, on {evidence.on}"
    return said if evidence.difference is None else f"{said}; outputs are {apart}"


def markdown(answer: Answer, evidence: Evidence | None, *, by: str | None) -> str:
    """The same table in Markdown, every number exact."""
    title = f"**{TITLES[answer.question.kind][0]}** {' · '.join(conditions(answer.question))}"
    rows: list[tuple[str, ...]] = []
    for part in sections(answer, by):
        rows.append((f"**{part.title}**", "", "", ""))
        rows += [
            (row.label, shown(row, EXACT, 0), shown(row, EXACT, 1), ratio(row.left, row.right)) for row in part.rows
        ]
    head = ("", *(side.name for side in answer.sides), "ratio")
    told = notes(answer, evidence, on=False, shortened=False)
    return "\n".join([title, "", markdown_table(head, rows, numbers=True), "", *told])


def comma_separated(answers: Sequence[Answer]) -> str:
    """One row a cell: prompt, new, side, table, phase, layer, cell, value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("prompt", "new", "side", "table", "phase", "layer", "cell", "value"))
    for answer in answers:
        question = answer.question
        lengths = ("", "") if question.turns else (question.prompt, question.new)
        for side in answer.sides:
            for table, phase, layer, cell, value in _cells(side):
                writer.writerow((*lengths, side.name, table, phase, "" if layer is None else layer, cell, value))
    return out.getvalue().rstrip("\n")


def _cells(side: Side) -> list[tuple[str, str, int | None, str, int]]:
    tally = side.tally
    return [
        ("states", "", None, "", tally.states),
        *(("comparisons", p, i, "", n) for (p, i), n in tally.comparisons.items()),
        *(("macs", p, i, str(t), n) for (p, i, t), n in tally.macs.items()),
        *(("kv", p, i, c, n) for (p, i, c), n in tally.kv.items()),
        ("held", "", None, "", side.held),
    ]


def document(answers: Sequence[Answer], evidence: Evidence | None, *, many: bool) -> str:
    """JSON: the record of the answer, or `{"lengths": [records]}` where there are several."""
    records = [answer.to_dict() for answer in answers]
    record: dict[str, Any] = {"lengths": records} if many else records[0]
    return as_json("count", record | ({"against": evidence.to_dict()} if evidence else {}))


LENGTHS = ("new", "states without", "with", "multiplications without", "with", "ratio", "cache")


def by_length(answers: Sequence[Answer], room: int = EXACT) -> list[tuple[str, ...]]:
    """One row a length, numbers exact where they fit in `room` characters."""
    return [
        (
            f"{a.question.new:,}",
            *(number(side.tally.states, room) for side in a.sides),
            *(number(side.tally.total, room) for side in a.sides),
            ratio(a.left.tally.total, a.right.tally.total),
            size(a.right.held * ELEMENT_BYTES),
        )
        for a in answers
    ]


def lengths_text(answers: Sequence[Answer], *, on: bool, columns: int) -> str:
    """The table by length for a terminal of `columns`, its numbers as exact as they fit."""
    for room in range(WIDEST, LEAST_ROOM - 1, -1):
        heads = ("new", "without", "with", "without", "with", "ratio", f"at {ELEMENT_BYTES} B")
        body = [heads, *by_length(answers, room)]
        widths = [max(len(line[k]) for line in body) for k in range(len(heads))]
        widths[1] = max(widths[1], len("token states") - widths[2] - 2)
        if sum(widths) + 2 * (len(widths) - 1) <= columns:
            break
    spans = (widths[0], widths[1] + widths[2] + 2, widths[3] + widths[4] + 2, widths[5], widths[6])
    named = ("", "token states", "multiplications", "", "cache")
    lines = ["  ".join(f"{t:>{w}}" for t, w in zip(named, spans, strict=True))]
    lines += ["  ".join(f"{t:>{w}}" for t, w in zip(line, widths, strict=True)) for line in body]
    top = heading(answers[0].question, on=on, lengths=f"prompt {answers[0].question.prompt:,}")
    painted = [*(paint(line, BOLD, on=on) for line in lines[:2]), *lines[2:]]
    return "\n".join([*top, *painted, "", *notes(answers[0], None, on=on, shortened=body[1:] != by_length(answers))])


def lengths_markdown(answers: Sequence[Answer]) -> str:
    """The table by length in Markdown."""
    return markdown_table(LENGTHS, by_length(answers), numbers=True)
