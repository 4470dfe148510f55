"""The habits that a machine can check: sizes, docstrings, the tree in CONTRIBUTING, start-up."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import kvtally
from docs.tree import PAGE, said, tree

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "kvtally").rglob("*.py"))
ALL = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", ALL, ids=place)
def test_a_file_stays_under_400_lines_and_a_function_under_40(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") < 400, f"{place(path)}: split it along a noun"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines < 40, f"{place(path)}: `{node.name}` has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert said(path).endswith("."), f"{place(path)}: expected a docstring whose first paragraph is a sentence"


def test_the_tree_in_contributing_is_the_tree() -> None:
    assert PAGE.read_text().endswith(tree()), "run: python tests/docs/tree.py"


@pytest.mark.parametrize("name", kvtally.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    thing = getattr(kvtally, name)
    docstring = inspect.getdoc(thing) or ""
    assert docstring and not docstring.startswith(f"{name}("), f"kvtally.{name} lacks a docstring"
    if inspect.isfunction(thing):
        assert ">>>" in docstring, f"kvtally.{name} lacks a doctest"
