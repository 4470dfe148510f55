"""A line on stderr while something long is done: a bar, what it is, how long still; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

PAUSE = 0.2  # seconds between two lines
WIDTH, BAR, NAME = 75, 20, 28  # columns: of the line, of the bar, of what is worked on


def reading(doing: str = "reading") -> tuple[Callable[[str, int, int], None] | None, Callable[[], None]]:
    """What to call with (file or what it is, done, of how much), and what at the end; None where stderr is no terminal.

    The time still to go is that of all calls together.
    """
    if not sys.stderr.isatty():
        return None, lambda: None
    start = time.monotonic()
    last = [0.0]

    def show(name: str, done: int, whole: int) -> None:
        now = time.monotonic()
        if now - last[0] < PAUSE:
            return
        last[0] = now
        sys.stderr.write("\r" + line(name, done, whole, now - start, doing).ljust(WIDTH))
        sys.stderr.flush()

    def end() -> None:
        if last[0]:
            sys.stderr.write("\r" + " " * WIDTH + "\r")
            sys.stderr.flush()

    return show, end


def line(name: str, done: int, whole: int, spent: float, doing: str = "reading") -> str:
    """What is said; no bar where it is not known how much there is.

    >>> line("traces/a.jsonl", 25, 100, 2.0)
    'reading a.jsonl  [#####               ]  25 %, 6 s to go'
    >>> line("-", 25, 0, 2.0)
    'reading -'
    """
    short = Path(name).name
    said = f"{doing} {short if len(short) <= NAME else '…' + short[1 - NAME :]}"
    if not whole or not done:
        return said
    part = min(done / whole, 1.0)
    bar = ("#" * int(BAR * part)).ljust(BAR)
    return f"{said}  [{bar}] {100 * part:3.0f} %, {spent * (1 - part) / part:,.0f} s to go"
