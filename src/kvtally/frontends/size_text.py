"""The answer of `size` as text for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from fractions import Fraction
from textwrap import wrap
from typing import Any

from kvtally.core.passes import LONGEST
from kvtally.frontends.as_json import as_json
from kvtally.frontends.evidence import describe
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.render import BOLD, DIM, GREEN, NARROW, RED, YELLOW, coloured, number, paint, ratio, size
from kvtally.frontends.size_question import HELD, Room, SizeAnswer, SizeQuestion
from kvtally.pure.size_terms import Product

TITLE = "What does the KV cache take?"
BY_KIND, SIDES = "held, by layers", "held and reserved"
FORMULA = ("", "", "layers", "heads", "tokens", "dim", "bytes", "")
PRODUCTS = ("held", "K, V", "layers", "heads", "tokens", "width", "bytes each", "bytes")
RESERVED = ("", "bytes", "of held", "requests", "longest")
ROOM = 15  # characters of a number of bytes before it is shortened
SIZED = 9  # columns of 999.9 MiB


def as_text(answer: SizeAnswer, *, form: str, more: dict[str, Any] | None = None) -> str:
    """The answer in one of the formats; `more` are records that JSON holds beside it."""
    if form == "json":
        return as_json("size", answer.to_dict() | (more or {}))
    if form == "csv":
        return comma_separated(answer)
    return markdown(answer) if form == "md" else text(answer, on=coloured())


def text(answer: SizeAnswer, *, on: bool) -> str:
    """The table for a terminal; `on` colours it."""
    q = answer.question
    lines = [paint(TITLE, BOLD, on=on), *(paint(line, DIM, on=on) for line in conditions(q)), ""]
    lines += formula(answer, on=on)
    lines += rooms(answer, on=on)
    lines += [""] + [paint(line, DIM, on=on) for line in wrap(said(answer), NARROW, break_on_hyphens=False)]
    if answer.tries:
        lines += [paint(line, GREEN, on=on) for line in wrap(trial(answer), NARROW, break_on_hyphens=False)]
    return "\n".join(lines)


def conditions(q: SizeQuestion) -> list[str]:
    """Everything the numbers depend on."""
    types = q.types
    kinds = str(types.k) if types.k == types.v else f"K {types.k}, V {types.v}"
    parts = [f"{q.decoder.name or 'decoder'}: {describe(q.decoder)}", f"{q.tokens:,} tokens", kinds]
    parts += [f"batch {q.batch:,}"] * (q.batch > 1)
    parts += [f"one of {q.devices:,} devices"] * (q.devices > 1)
    return wrap(" · ".join(parts), NARROW)


def formula(answer: SizeAnswer, *, on: bool) -> list[str]:
    """The multiplications written out, a line for each kind of layer, and what they come to."""
    body = [FORMULA, *(_factors(line) for line in answer.lines)]
    widths = [max(len(row[k]) for row in body) for k in range(len(FORMULA))]
    widths[0] = max(widths[0], len(BY_KIND) - 2)
    widths[-1] = max(widths[-1], SIZED)
    head, *rows = (_multiplied(row, widths, "×" if k else " ") for k, row in enumerate(body))
    q = answer.question
    sums = [("a request", answer.request), ("one token more", answer.growth)]
    if q.batch > 1:
        sums.insert(1, (f"{q.batch:,} requests", answer.held.bytes_held))
    room = len(head) - widths[-1] - 2
    totals = (f"  {label} {number(n, ROOM):>{room - len(label) - 5}} B  {size(n):>{widths[-1]}}" for label, n in sums)
    first, *others = totals
    title = paint(BY_KIND, BOLD, on=on) + paint(head[len(BY_KIND) :].rstrip(), DIM, on=on)
    return [title, *rows, paint(first, BOLD, on=on), *others]


def factors(answer: SizeAnswer) -> list[tuple[Product, tuple[str, ...]]]:
    """Each line of the formula, and its factors as text: what, copies, layers, heads, tokens, dim, bytes, result."""
    return [(line, _factors(line)) for line in answer.lines]


def _factors(line: Product) -> tuple[str, ...]:
    numbers = (line.copies, line.layers, line.heads, line.length, line.width)
    return (_label(line), *(f"{n:,}" for n in numbers), exact(line.per_element), size(line.bytes))


def _label(line: Product) -> str:
    """What is kept, and of how many tokens where that is not plain.

    >>> line = Product(what="states", kind="once", copies=1, layers=2, heads=3, length=1, width=4, row=16, dtype="fp32")
    >>> _label(line)
    'states'
    """
    return line.what if line.kind in ("once", "of the source") else f"{line.what}, {line.kind}"


def _multiplied(row: Sequence[str], widths: Sequence[int], sign: str) -> str:
    label, *factors, result = row
    *columns, last = widths[1:]
    joined = f" {sign} ".join(f"{factor:>{w}}" for factor, w in zip(factors, columns, strict=True))
    return f"  {label:<{widths[0]}}  {joined}  {result:>{last}}"


def exact(value: Fraction) -> str:
    """A fraction as a decimal, cut after four digits where it goes on.

    >>> exact(Fraction(2)), exact(Fraction(17, 16)), exact(Fraction(1, 3))
    ('2', '1.0625', '0.3333…')
    """
    if value.denominator == 1:
        return f"{value.numerator:,}"
    shown = f"{float(value):.4f}".rstrip("0")
    return shown if Fraction(shown) == value else f"{int(value * 10**4) / 10**4:.4f}…"


def rooms(answer: SizeAnswer, *, on: bool) -> list[str]:
    """Held and reserved side by side, and what fits in the memory given."""
    if len(answer.rooms) == 1 and not answer.question.memory:
        return []
    heads = ("bytes", "", "of held", *(("requests", "longest") if answer.question.memory else ()))
    body = [_row(room, answer) for room in answer.rooms]
    table = [heads, *(values for _, values, _ in body if values)]
    widths = [max(len(row[k]) for row in table) for k in range(len(heads))]
    names = max(len(SIDES) - 2, *(len(name) for name, _, _ in body))
    lines = [paint(f"{SIDES:<{names + 2}}", BOLD, on=on) + paint(_columns(heads, widths), DIM, on=on)]
    for name, values, refused in body:
        if values:
            lines.append(f"  {name:<{names}}{_columns(values, widths)}".rstrip())
        for k, piece in enumerate(wrap(refused, NARROW - names - 4)):
            lines.append(f"  {name if k == 0 else '':<{names}}  {paint(piece, YELLOW, on=on)}")
    return lines


def _columns(values: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"  {value:>{w}}" for value, w in zip(values, widths, strict=True))


def _row(room: Room, answer: SizeAnswer) -> tuple[str, tuple[str, ...], str]:
    if room.bytes is None:
        return room.name, (), room.refused
    times = ratio(room.bytes, answer.held.bytes_held) if room.name != HELD else ""
    fit = () if room.requests is None else (limit(room.requests), limit(room.longest or 0))
    return room.name, (number(room.bytes, ROOM), size(room.bytes), times, *fit), ""


def limit(n: int) -> str:
    return "no limit" if n >= LONGEST else f"{n:,}"


def said(answer: SizeAnswer) -> str:
    """What stands under the table: the memory, and what is not counted."""
    q, parts = answer.question, []
    if q.memory:
        m = q.memory
        taken = "no weights given" if m.weights is None else f"{size(m.share)} of weights"
        parts.append(
            f"Requests of {q.tokens:,} tokens and the longest of {q.batch:,} in {size(m.free)}: {size(m.total)} × "
            f"{float(m.used):g}, {taken}."
        )
    parts.append("Held: what attention needs; an engine: what it reserves. Not counted: activations.")
    return " ".join(parts)


def trial(answer: SizeAnswer) -> str:
    """What would make more requests fit, and how many would."""
    (first, n), *others = answer.tries
    said = [f"{first}: {n:,} request{'' if n == 1 else 's'}", *(f"{options}: {n:,}" for options, n in others)]
    return "try " + " · ".join(said)


def markdown(answer: SizeAnswer) -> str:
    """The same tables in Markdown, every number exact."""
    title = f"**{TITLE}** {' '.join(conditions(answer.question))}"
    held = [(_label(line), *_factors(line)[1:-1], f"{line.bytes:,}") for line in answer.lines]
    held += [("a request", *[""] * 6, f"{answer.request:,}"), ("one token more", *[""] * 6, f"{answer.growth:,}")]
    rooms: list[tuple[str, ...]] = []
    for room in answer.rooms:
        if room.bytes is None:
            rooms.append((room.name, room.refused, "", "", ""))
            continue
        fit = ("", "") if room.requests is None else (limit(room.requests), limit(room.longest or 0))
        rooms.append((room.name, f"{room.bytes:,}", _row(room, answer)[1][2], *fit))
    tables = (markdown_table(head, rows, numbers=True) for head, rows in ((PRODUCTS, held), (RESERVED, rooms)))
    return "\n\n".join([title, *tables, "\n".join([said(answer), *([trial(answer)] if answer.tries else [])])])


def comma_separated(answer: SizeAnswer) -> str:
    """One row a cell: who holds or reserves it, layer, part, bytes; and what fits of it in the memory given."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    q = answer.question
    fitting = ("requests", "longest") if q.memory else ()
    writer.writerow(("model", "tokens", "batch", "name", "layer", "part", "bytes", *fitting))
    for room in answer.rooms:
        if room.footprint:
            cells = room.footprint.held if room.name == HELD else room.footprint.reserved
            for (layer, part), n in cells.items():
                place = "" if layer is None else layer
                fits = (getattr(room, name) for name in fitting)
                writer.writerow((q.decoder.name, q.tokens, q.batch, room.name, place, part, n, *fits))
    return out.getvalue().rstrip("\n")


def measured_text(agreement: Any, *, on: bool) -> str:
    """What came of the measurement: agreement, or every layer that differs."""
    return "\n".join(paint(line, GREEN if agreement.agree else RED, on=on) for line in str(agreement).split("\n"))
