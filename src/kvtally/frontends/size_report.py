"""The answer of `size` as a web page."""

from __future__ import annotations

from collections.abc import Sequence

from kvtally.frontends.render import ratio
from kvtally.frontends.report import Bars, Group, Report, Text
from kvtally.frontends.size_question import HELD, SizeAnswer
from kvtally.frontends.size_text import TITLE, conditions, factors, limit, said, trial


def page(answer: SizeAnswer, command: Sequence[str], texts: Sequence[Text] = ()) -> Report:
    """The report: the formula's lines, held against reserved, every number exact; then `texts`."""
    held = answer.held.bytes_held
    lines = [(row[0], " × ".join(row[1:-1]), f"{line.bytes:,}", "", "") for line, row in factors(answer)]
    lines += [
        ("a request", "", f"{answer.request:,}", "", ""),
        ("one token more", "", f"{answer.growth:,}", "", ""),
    ]
    rooms = [
        (
            room.name,
            room.refused,
            "" if room.bytes is None else f"{room.bytes:,}",
            "" if room.bytes is None or room.name == HELD else ratio(room.bytes, held),
            "" if room.requests is None else f"{limit(room.requests)}; {limit(room.longest or 0)}",
        )
        for room in answer.rooms
    ]
    return Report(
        title=TITLE,
        about=conditions(answer.question),
        command=command,
        bars=Bars(
            names=("held", "reserved"),
            rows=[(room.name, held, room.bytes or 0) for room in answer.rooms if room.name != HELD],
        ),
        heads=("K, V × layers × heads × tokens × dim × bytes", "bytes", "of held", "requests; longest"),
        groups=[Group(title="held, by layers", rows=lines), Group(title="held and reserved", rows=rooms)],
        notes=[said(answer), *([trial(answer)] if answer.tries else [])],
        texts=texts,
    )
