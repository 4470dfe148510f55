"""Where the learners' files of these tests are, and the text that the grader gets."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "src" / "kvtally" / "frontends" / "lab" / "reference.py"


def named(folder: str) -> list[Path]:
    """Every learner's file of a folder."""
    return sorted((HERE / folder).glob("*.py"))


def upon_reference(path: Path) -> str:
    """The reference solution with the functions of `path` in place of its own: later definitions win."""
    return REFERENCE.read_text() + "\n\n" + path.read_text()


def said(path: Path) -> tuple[str, str]:
    """(step, sentence) that the first line of a wrong file promises."""
    step, _, sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").partition(": ")
    return step, sentence
