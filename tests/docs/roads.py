"""The page docs/roads.md: each road to a number, what it must equal, and how many tests passed on it.

`python tests/docs/roads.py RESULTS.xml …` writes it from what pytest's `--junitxml` wrote.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "roads.md"
ROADS = (  # road, what must be equal, its tests: the first row that fits
    ("pinned", "what was read, refused or answered before, each field, key and argument changed alone: a change names "
     "itself, which is no evidence that it is right",
     ("zoo/test_read_pinned", "unit/test_gguf_changed", "unit/test_changed_arguments")),
    ("executed", "the formula, in every cell, on random decoders and lists of passes run in plain Python; "
     "and the outputs with and without a cache", ("property/test_closed_executed", "unit/test_count_executed")),
    ("rounded", "schemes of few bits against independent implementations of them, bytes against `size`",
     ("unit/live/test_round", "unit/live/test_schemes", "round")),
    ("traced", "the formula, in every cell, on the products that PyTorch dispatches for real transformers models",
     ("unit/live", "zoo")),
    ("laws", "a split pass costs what the whole does, an edit what its suffix does, more is never less",
     ("property/test_laws", "property/test_span", "property/test_size_laws")),
    ("published", "nanoGPT's sizing of GPT-2, Chinchilla's table A4, sizes of known configs", ("unit/test_anchors",)),
    ("configs", "every field of every family read, refused or noted, against decoders written by hand",
     ("property/test_every_field", "unit/test_config", "unit/test_described", "unit/test_catalogue", "unit/test_model",
      "unit/test_facts")),
    ("GGUF", "what the `gguf` package reads, and the same decoders as configs give", ("unit/test_gguf",)),
    ("engines", "what llama.cpp allocates and prints, what vLLM's and SGLang's public logs say",
     ("engines", "unit/test_engine", "unit/test_explain", "unit/test_size")),
    ("the page", "the formula, on 500 random settings in a real Chromium, in BigInt", ("browser",)),
    ("the learner", "three figures: the learner's counter, what the grader saw, the formula", ("lab",)),
    ("check", "planted faults are found where they were planted, healthy models pass, in true float64", ("check",)),
    ("replay", "a brute-force cache of every capacity, and the hits of vLLM's own block manager", ("traffic",)),
    ("docs", "what a command prints now", ("docs",)),
    ("messages", "every wrong question: one pinned text, one exit code", ("messages",)),
)  # fmt: skip
HEAD = """# How every number is verified

No number rests on one way of counting. The ways share no code that counts (a lint contract forbids that the
counts import each other), so that their agreement is evidence. Written by `python tests/docs/roads.py` from the results
of the tests.

| road | what must be equal | passed | failed | skipped |
|---|---|---|---|---|
"""
TAIL = """
A skipped test says why: mostly that reference data or Chromium is not on the machine.

- Integers are compared exactly. A tolerance, where floats are compared, is justified in a comment beside it.
- Sizes in tests are never square: a transposed matrix or two swapped widths would go unseen.
- Speed decides no test. It is in `bench/RESULTS.md`, as ratios.
- Counts by [architecture](zoo.md) and checks by [architecture](zoo_check.md) have tables of their own.
"""


def outcomes(files: Iterable[Path]) -> Iterable[tuple[str, str]]:
    """(the test's path below tests/, passed or failed or skipped) of each case."""
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            place = re.sub(r"^tests\.", "", case.get("classname", "")).replace(".", "/")
            states = {child.tag for child in case}
            yield place, "failed" if states & {"failure", "error"} else "skipped" if "skipped" in states else "passed"


def page(files: Iterable[Path]) -> str:
    """The whole page."""
    counts: dict[str, Counter[str]] = {road: Counter() for road, _, _ in ROADS}
    for place, state in outcomes(files):
        first = next((road for road, _, starts in ROADS if place.startswith(starts)), None)
        if first is not None:
            counts[first][state] += 1
    rows = []
    for road, equal, _ in (*ROADS[1:], ROADS[0]):
        figures = [
            f"{counts[road][state]:,}" if counts[road] else "not run" for state in ("passed", "failed", "skipped")
        ]
        rows.append(f"| {road} | {equal} | {' | '.join(figures)} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page([Path(name) for name in sys.argv[1:]]))
