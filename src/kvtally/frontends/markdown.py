"""A table in Markdown, whatever its cells hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def _row(cells: Iterable[object]) -> str:
    """A line of a table; a bar inside a cell does not end it."""
    return "| " + " | ".join(str(cell).strip().replace("|", "\\|") for cell in cells) + " |"


def markdown_table(head: Sequence[object], rows: Iterable[Iterable[object]], *, numbers: bool = False) -> str:
    """Its lines; `numbers` puts all columns but the first to the right."""
    rule = (":--", *["--:"] * (len(head) - 1)) if numbers else ("---",) * len(head)
    return "\n".join(map(_row, (head, rule, *rows)))
