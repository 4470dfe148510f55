"""One self-contained HTML page for a verb's record: its table, its picture, the command that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kvtally.core.errors import UnreadableError

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
class Report:
    """Everything a page says: all of it text, none of it markup."""

    title: str
    about: Sequence[str]
    command: Sequence[str]
    bars: Bars
    heads: Sequence[str]
    groups: Sequence[Group]
    notes: Sequence[str]


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
<section aria-label="Table">
<div class="scroll" tabindex="0" role="group" aria-label="All rows">{_table(report)}</div>{notes}
</section>
<section aria-labelledby="made"><h2 id="made">Made by</h2><pre><code>{command}</code></pre></section>
</main>
</body>
</html>
"""


def write(report: Report, path: Path) -> None:
    """Writes the page to `path`."""
    try:
        path.write_text(html(report), encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnreadableError(
            f"cannot be written: {error.strerror}", where=str(path), hint="choose another file for --html"
        ) from None


def _said(text: str) -> str:
    """Text safe as content and as an attribute's value, cut where it is far too long to be read."""
    return escape(text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…")


def _bdi(text: str) -> str:
    return f"<bdi>{_said(text)}</bdi>"


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
