"""Each page of docs/found holds a reproduction of at most 30 lines, and it prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")
DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "found").glob("*.md"))
MADE_WITH = "5.24"  # later ones may have repaired it


def blocks(page: Path) -> tuple[str, str]:
    text = page.read_text()
    code, said = (re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for kind in ("python", "text"))
    assert len(code) == len(said) == 1, page.name
    return code[0], said[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_reproduction_is_short_and_prints_what_is_shown(page: Path) -> None:
    if not transformers.__version__.startswith(MADE_WITH):
        pytest.skip(f"facts of transformers {MADE_WITH}, and this is {transformers.__version__}")
    code, said = blocks(page)
    assert len(code.splitlines()) <= 30
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page.name, "exec"), {"__name__": "found"})
    assert printed.getvalue() == said


def explained() -> set[tuple[str, str]]:
    """(architecture, group) of every cell that a page says it explains."""
    cells: set[tuple[str, str]] = set()
    for page in PAGES:
        for names, groups in re.findall(r"^In the zoo: (.+?):\s+(.+?)\.$", page.read_text(), re.MULTILINE | re.DOTALL):
            cells |= {(name, group) for name in re.findall(r"`(.+?)`", names) for group in re.split(r",\s+", groups)}
    return cells


def found() -> set[tuple[str, str]]:
    """(architecture, group) of every DEFECT in the table of the zoo."""
    table = [line.strip("| ").split(" | ") for line in (DOCS / "zoo_check.md").read_text().splitlines() if "|" in line]
    cells = [(row[0].strip("`"), *cell) for row in table[2:] for cell in zip(table[0], row, strict=False)]
    return {(name, group) for name, group, said in cells if said == "DEFECT"}


def test_each_defect_of_the_zoo_has_a_page_and_no_page_claims_another() -> None:
    assert len(found()) > 100
    assert found() == explained()
