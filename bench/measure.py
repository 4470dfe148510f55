"""Two pieces of work timed side by side: medians of both and of their ratio."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from math import log
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock seconds that `work` takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds, user and system, of a command run once."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def side_by_side(a: Callable[[], float], b: Callable[[], float], runs: int = 7) -> tuple[float, float, float]:
    """Medians of `a`, of `b` and of a/b over `runs` pairs taken in turn, after one warm-up of each."""
    a(), b()
    pairs = [(a(), b()) for _ in range(runs)]
    return (
        statistics.median(x for x, _ in pairs),
        statistics.median(y for _, y in pairs),
        statistics.median(x / y for x, y in pairs),
    )


def exponent(sizes: list[int], times: list[float]) -> float:
    """Slope of log time over log size: 0 is constant, 1 is linear."""
    return statistics.linear_regression([log(n) for n in sizes], [log(t) for t in times]).slope


def machine() -> str:
    """The machine and the Python these figures were taken with."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def write(title: str, rows: list[tuple[str, str, str]], versions: str) -> None:
    """The section `title` of RESULTS.md, replaced whole; the other sections stay."""
    table = ["| what | figure | measured against |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    section = "\n".join([f"## {title}", "", f"{machine()}; {versions}", "", *table, ""])
    kept = RESULTS.read_text().split("\n## ")[1:] if RESULTS.exists() else []
    others = ["## " + part for part in kept if not part.startswith(f"{title}\n")]
    head = "# Speed\n\nMedians of runs taken in turn, side by side in one run. Regenerate with `make bench`.\n"
    RESULTS.write_text("\n".join([head, *sorted([*(o.rstrip() + "\n" for o in others), section])]))
