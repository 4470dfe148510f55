"""A random sample of the mutants of core and pure, each run against the tests that reach it.

`python tests/mutants.py 400 [seed]` works on a copy of the tree, and prints what survived.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / ".cache" / "mutants"
COPIED = ("src", "tests", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md", "LICENSE")
CHILDREN = os.environ.get("KVTALLY_MUTANTS", "2")  # run at a time
FIRST = "kvtally.core.span.x_triangle__mutmut_1"  # asked for to have all of them made and the tests timed


def copy() -> None:
    """The tree, in an empty folder of its own."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, WORK / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, WORK / name)


def mutmut(*words: str) -> str:
    """What mutmut prints on the copy."""
    found = {
        "KVTALLY_SHARED": str((ROOT / os.environ.get("KVTALLY_SHARED", "../shared")).resolve()),
        "KVTALLY_SMOLLM2": os.environ.get("KVTALLY_SMOLLM2", str(ROOT / ".cache" / "smollm2")),
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, "-m", "mutmut", *words],
        capture_output=True, text=True, cwd=WORK, env=os.environ | found, check=False,
    )  # fmt: skip
    if run.returncode != 0:
        sys.exit(f"mutmut {' '.join(words)[:80]}: {run.stdout[-3000:]}{run.stderr[-3000:]}")
    return run.stdout


def statuses() -> dict[str, str]:
    """Each mutant and what became of it."""
    lines = [line.strip().split(": ") for line in mutmut("results", "--all", "true").splitlines() if ": " in line]
    return dict(lines)


def main(size: int, seed: int) -> None:
    copy()
    mutmut("run", "--max-children", CHILDREN, FIRST)
    names = sorted(statuses())
    sample = random.Random(seed).sample(names, min(size, len(names)))
    mutmut("run", "--max-children", CHILDREN, *sample)
    became = {name: status for name, status in statuses().items() if name in set(sample)}
    for name in sorted(name for name, status in became.items() if status in ("survived", "no tests")):
        sys.stdout.write(f"\n{became[name]}: {mutmut('show', name)}")
    sys.stdout.write(f"\n{len(sample)} of {len(names)} mutants, seed {seed}: {dict(Counter(became.values()))}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
