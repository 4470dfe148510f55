"""The habits that a machine can check: sizes, docstrings, the tree in CONTRIBUTING, start-up."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from docs.tree import PAGE, said, tree

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "kvtally").rglob("*.py"))
ALL = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])

UNIT = re.compile(r"\b(elements|bytes|MACs|multiplications|tokens|cells|seconds|logits|exit code|passes|model|arXiv)\b")


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


def public(place: str) -> list[str]:
    """The public names of a package, read from its file: what it needs may not be installed."""
    tree = ast.parse((ROOT / "src" / Path(*place.split(".")) / "__init__.py").read_text())
    values = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return [name for value in values for name in ast.literal_eval(value)]


@pytest.mark.parametrize("name", [f"{place}.{n}" for place in ("kvtally", "kvtally.live", "kvtally.traffic")
                                  for n in public(place)])  # fmt: skip
def test_every_public_name_says_what_it_is(name: str) -> None:
    """A sentence first; then a doctest, or the unit or the source of what is returned."""
    place, _, last = name.rpartition(".")
    if place != "kvtally":
        pytest.importorskip({"kvtally.live": "transformers", "kvtally.traffic": "pyarrow"}[place])
    thing = getattr(importlib.import_module(place), last)
    docstring = inspect.getdoc(thing) or ""
    first = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    assert first.endswith((".", ":")) and not docstring.startswith(f"{last}("), (
        f"{name}: `{first}`, expected a sentence"
    )
    assert ">>>" in docstring or UNIT.search(docstring), f"{name}: no doctest, no unit and no source"
    if place == "kvtally" and inspect.isfunction(thing):
        assert ">>>" in docstring, f"{name} lacks a doctest"


def test_the_layers_are_held_by_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `make lint` runs: an import that points up, or torch in a record, breaks one of them."""
    contracts = pytest.importorskip("importlinter.cli", reason="needs import-linter")
    monkeypatch.chdir(ROOT)
    assert contracts.lint_imports(no_cache=True, no_logo=True) == 0
