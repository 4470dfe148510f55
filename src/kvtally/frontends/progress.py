"""A line on stderr while a file is read: its name, how much of it, how long still; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

PAUSE = 0.2  # seconds between two lines
WIDTH = 75


def reading() -> tuple[Callable[[str, int, int], None] | None, Callable[[], None]]:
    """What to call with (file, bytes read, bytes), and what to call at the end; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None, lambda: None
    begun: dict[str, float] = {}
    last = [0.0]

    def show(file: str, done: int, whole: int) -> None:
        now = time.monotonic()
        start = begun.setdefault(file, now)
        if now - last[0] < PAUSE:
            return
        last[0] = now
        sys.stderr.write("\r" + line(file, done, whole, now - start).ljust(WIDTH))
        sys.stderr.flush()

    def end() -> None:
        if last[0]:
            sys.stderr.write("\r" + " " * WIDTH + "\r")
            sys.stderr.flush()

    return show, end


def line(file: str, done: int, whole: int, spent: float) -> str:
    """What is said of a file; no share where its size is not known.

    >>> line("traces/a.jsonl", 25, 100, 2.0)
    'reading a.jsonl 25 %, 6 s to go'
    """
    name = Path(file).name[-40:]
    if not whole or not done:
        return f"reading {name}"
    left = spent * (whole - done) / done
    return f"reading {name} {100 * done // whole} %, {left:.0f} s to go"
