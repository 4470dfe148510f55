"""Visits that go wrong, each in its own way; prints the rows that the sweep makes of them. Run by test_sweep.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from kvtally.live.zoo_row import Row
from kvtally.live.zoo_sweep import Limits, sweep

MEMORY = 1 << 30


def work(name: str) -> Row:
    if name == "sleeps":
        time.sleep(600)
    if name == "starts another":
        Path(sys.argv[1]).write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        time.sleep(600)
    if name == "eats memory":
        bytearray(4 * MEMORY)
    if name == "vanishes":
        os._exit(0)
    if name == "raises":
        raise ValueError("no such luck\nand more")
    return Row(name=name)


if __name__ == "__main__":
    cases = ["raises", "vanishes", "eats memory", "sleeps", "starts another", "good"]
    rows = sweep(cases, jobs=len(cases), limits=Limits(seconds=5, memory=MEMORY, work=work))
    sys.stdout.write(json.dumps({row.name: asdict(row.built) for row in rows}))
