"""What README and docs show is what the commands print, what the code answers, and where the links lead."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from docs.blocks import BLOCK, commands, printed

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<before>[^\n]*)\n\n?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^\*Not run by the tests: .+\.\*$")
WRITTEN = {"cli.md", "python.md"}  # by scripts, from what is tested elsewhere
MADE = {"explore.html"}  # by `make docs`
SHOWN = [
    pytest.param(command, said, id=f"{page.name}: {command}")
    for page in PAGES
    for match in BLOCK.finditer(page.read_text())
    for command, said in commands(match["body"])
]


def blocks(*languages: str) -> list[ParameterSet]:
    """The fenced blocks in these languages that carry no word that they are not run."""
    return [
        pytest.param(match["body"], id=f"{page.name}: block {at}")
        for page in PAGES
        if page.parent.name != "found" and page.name not in WRITTEN  # tests/check/test_found.py runs the former
        for at, match in enumerate(FENCE.finditer("\n\n" + page.read_text()))
        if match["language"] in languages and not NOT_RUN.match(match["before"])
    ]


@pytest.mark.parametrize(("command", "said"), SHOWN)
def test_a_shown_command_prints_what_is_shown(command: str, said: str) -> None:
    assert said.strip("\n") == printed(command).strip("\n"), f"run: python tests/docs/blocks.py, for {command}"


@pytest.mark.parametrize("block", blocks("python"))
def test_python_shown_does_what_is_shown(block: str, request: pytest.FixtureRequest) -> None:
    if ">>>" in block:
        test = doctest.DocTestParser().get_doctest(block, {}, "page", None, 0)
        assert doctest.DocTestRunner().run(test).failed == 0
        return
    pytest.importorskip("transformers", reason="needs PyTorch and transformers")
    text = f"import pytest\nfrom docs.prelude import *\n{block}"
    if "def test_" in block:
        importlib.import_module("docs.prelude")  # before pytester, which forgets what is imported after it
        pytester = request.getfixturevalue("pytester")
        pytester.makepyfile(text)
        assert pytester.runpytest_inprocess("-p", "no:xdist").ret == 0
    else:
        exec(compile(text, "page", "exec"), {"__name__": "page"})


@pytest.mark.parametrize("block", blocks("sh"))
def test_a_script_shown_ends_with_0(block: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-ec", block],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("block", blocks("json"))
def test_json_shown_is_json(block: str) -> None:
    json.loads(block)


def test_every_block_is_run_or_says_why_not() -> None:
    run = {"console", "python", "sh", "json"}
    languages = {match["language"] for page in PAGES for match in FENCE.finditer("\n\n" + page.read_text())}
    assert blocks(*languages - run) == []


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if "://" in target or target in MADE:
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in slugs(found), f"{page.name}: {target}#{anchor}"


def test_every_page_is_in_the_navigation_and_no_other() -> None:
    named = set(re.findall(r'"([\w/]+\.md)"', (ROOT / "zensical.toml").read_text()))
    assert named == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_readme_shows_the_main_job() -> None:
    shown = [command for match in BLOCK.finditer(README.read_text()) for command, _ in commands(match["body"])]
    assert "kvtally count" in shown
