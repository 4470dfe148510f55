"""What README and docs show is what the commands print and what the code answers."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from docs.blocks import BLOCK, commands, printed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [
    pytest.param(command, said, id=f"{page.name}: {command}")
    for page in PAGES
    for match in BLOCK.finditer(page.read_text())
    for command, said in commands(match["body"])
]


@pytest.mark.parametrize(("command", "said"), SHOWN)
def test_a_shown_command_prints_what_is_shown(command: str, said: str) -> None:
    assert said.strip("\n") == printed(command).strip("\n"), f"run: python tests/docs/blocks.py, for {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_shown_answers_as_shown(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, {}, page.name, str(page), 0)
            assert doctest.DocTestRunner().run(test).failed == 0
        else:
            compile(block, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_shows_the_main_job() -> None:
    shown = [command for command, _ in (c for m in BLOCK.finditer(PAGES[0].read_text()) for c in commands(m["body"]))]
    assert "kvtally count" in shown
