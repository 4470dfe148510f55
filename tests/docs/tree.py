"""The tree in CONTRIBUTING.md: each module with the first paragraph of its docstring.

`python tests/docs/tree.py` writes it into the file.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kvtally"
PAGE = ROOT / "CONTRIBUTING.md"
HEAD = "| file and what it is |\n|---|\n"


def said(path: Path) -> str:
    """What a module says of itself: the first paragraph of its docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.split("\n\n", maxsplit=1)[0].split())


def tree() -> str:
    """A row for each module, in the order of their paths."""
    rows = [f"| `{path.relative_to(SOURCE).as_posix()}` {said(path)} |" for path in sorted(SOURCE.rglob("*.py"))]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    kept, _, _ = PAGE.read_text().partition(HEAD)
    PAGE.write_text(kept + tree())
