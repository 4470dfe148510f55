"""One self-contained HTML page for a verb's record: its table, its picture, the command that made it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import click

from kvtally.frontends.output import write_whole

STYLE = Path(__file__).with_name("style.css")
LONGEST_TEXT = 400  # characters of one line of prose; a name can be any length


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows of texts under a title; the first text names the row."""

    title: str
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Pairs of amounts to be drawn to one scale, and the names of the two sides."""

    names: tuple[str, str]
    rows: Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A table of texts with a shade behind each, from 0 to 1; `corner` says what its rows are."""

    title: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]
    corner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture, and its numbers as a table of texts for who cannot see it. `svg` alone is markup, and escaped."""

    title: str
    svg: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What a terminal shows, line by line, under a title."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a page says: all of it text, none of it markup but the pictures' own."""

    title: str
    about: Sequence[str]
    command: Sequence[str]
    bars: Bars
    heads: Sequence[str]
    groups: Sequence[Group]
    notes: Sequence[str]
    heats: Sequence[Heat] = ()
    pictures: Sequence[Picture] = ()
    texts: Sequence[Text] = ()


def html(report: Report) -> str:
    """The page of a report, as text. Every string is escaped, wrapped, and kept from turning its surroundings.

    >>> bars = Bars(names=("", ""), rows=())
    >>> r = Report(title="<script>", about=(), command=(), bars=bars, heads=(), groups=(), notes=())
    >>> "<script>" in html(r), "&lt;script&gt;" in html(r)
    (False, True)
    """
    about = "".join(f'<p class="note">{_said(line)}</p>' for line in report.about)
    command = " ".join(map(_bdi, report.command))
    notes = "".join(f'<p class="note">{_said(line)}</p>' for line in report.notes)
    pictures, heats, texts = map(_drawn, report.pictures), map(_heat, report.heats), map(_lines, report.texts)
    tables = "".join([_tables(report, notes), *pictures, *heats, *texts])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>kvtally: {_said(report.title)}</title>
<style>{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header><p class="mark">kvtally</p><h1>{_bdi(report.title)}</h1>{about}</header>
<main>
<section aria-label="Picture">{_picture(report.bars)}</section>
{tables}<section aria-labelledby="made"><h2 id="made">Made by</h2><pre><code>{command}</code></pre></section>
</main>
</body>
</html>
"""


def write(report: Report, path: str | Path) -> None:
    """Writes the page to `path`; what was there stays until all is written."""
    write_whole(path, html(report), "--html")


def command() -> list[str]:
    """The words of the command that is being answered, as a shell takes them."""
    return [shlex.quote(word) for word in ("kvtally", *click.get_current_context().find_root().obj)]


def _said(text: str) -> str:
    """Text safe as content and as an attribute's value, cut where it is far too long to be read."""
    return escape(text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…")


def _bdi(text: str) -> str:
    return f"<bdi>{_said(text)}</bdi>"


def _tables(report: Report, notes: str) -> str:
    """The rows and the notes; nothing where there are none of either."""
    if not report.groups:
        return f'<section aria-label="Notes">{notes}</section>\n' if notes else ""
    named = 'tabindex="0" role="group" aria-label="All rows"'
    return f'<section aria-label="Table">\n<div class="scroll" {named}>{_table(report)}</div>{notes}\n</section>\n'


def _table(report: Report) -> str:
    heads = "".join(f'<th scope="col">{_bdi(head)}</th>' for head in report.heads)
    groups = "".join(_group(group, len(report.heads) + 1) for group in report.groups)
    return f"<table><thead><tr><td></td>{heads}</tr></thead>{groups}</table>"


def _group(group: Group, columns: int) -> str:
    title = f'<tr class="group"><th scope="rowgroup" colspan="{columns}">{_bdi(group.title)}</th></tr>'
    rows = "".join(
        f'<tr><th scope="row">{_bdi(label)}</th>' + "".join(f"<td>{_bdi(value)}</td>" for value in values) + "</tr>"
        for label, *values in group.rows
    )
    return f"<tbody>{title}{rows}</tbody>"


def _drawn(picture: Picture) -> str:
    """A picture under its title, its numbers in a table that opens."""
    heads = "".join(f'<th scope="col">{_bdi(head)}</th>' for head in picture.heads)
    rows = "".join(
        f'<tr><th scope="row">{_bdi(label)}</th>' + "".join(f"<td>{_bdi(text)}</td>" for text in cells) + "</tr>"
        for label, *cells in picture.rows
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    named = f'tabindex="0" role="group" aria-label="{_said(picture.title)}'
    return (
        f'<section><h2>{_bdi(picture.title)}</h2><div class="scroll" {named}: picture">{picture.svg}</div>'
        f'<details><summary>As a table</summary><div class="scroll" {named}: table">{table}</div></details></section>\n'
    )


def _heat(heat: Heat) -> str:
    """A table whose cells are shaded in proportion, so lightly that its texts stay readable."""
    heads = "".join(f'<th scope="col">{_bdi(head)}</th>' for head in heat.heads)
    rows = "".join(
        f'<tr><th scope="row">{_bdi(label)}</th>'
        + "".join(f'<td style="--share:{100 * share:.0f}%">{_bdi(text)}</td>' for text, share in cells)
        + "</tr>"
        for label, cells in heat.rows
    )
    corner = f'<th scope="col">{_bdi(heat.corner)}</th>' if heat.corner else "<td></td>"
    table = f'<table class="heat"><thead><tr>{corner}{heads}</tr></thead><tbody>{rows}</tbody></table>'
    named = f'role="group" aria-label="{_said(heat.title)}"'
    return f'<section><h2>{_bdi(heat.title)}</h2><div class="scroll" tabindex="0" {named}>{table}</div></section>\n'


def _lines(text: Text) -> str:
    """A text in columns, as it is."""
    lines = "\n".join(map(_bdi, text.text.split("\n")))
    named = f'role="group" aria-label="{_said(text.title)}"'
    return (
        f'<section><h2>{_bdi(text.title)}</h2><div class="scroll" tabindex="0" {named}><pre>{lines}</pre></div>'
        "</section>\n"
    )


def _picture(bars: Bars) -> str:
    """Two bars a row, to one scale for the whole picture; the left one is hatched, so that colour is not needed."""
    most = max((n for _, *pair in bars.rows for n in pair), default=0) or 1
    named = zip(("left", "right"), bars.names, strict=True)
    key = "".join(f'<li><i class="{side}"></i>{_bdi(name)}</li>' for side, name in named)
    said = "; ".join(f"{label}: {a:,} against {b:,}" for label, a, b in bars.rows)
    drawn = "".join(f"<p>{_bdi(label)}</p>{_bar('left', a, most)}{_bar('right', b, most)}" for label, a, b in bars.rows)
    return f'<ul class="key">{key}</ul><div class="bars" role="img" aria-label="{_said(said)}">{drawn}</div>'


def _bar(side: str, n: int, most: int) -> str:
    """A bar in proportion; `min-width` in the stylesheet keeps any but 0 in sight."""
    return f'<i class="{side}" style="width:{100 * n / most:.2f}%"></i>' if n else ""
