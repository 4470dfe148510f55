"""The page docs/python.md: every public name with its signature, its docstring and its methods.

`python tests/docs/python_api.py` writes it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from enum import Enum
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
MODULES = {
    "kvtally": "Needs Python alone.",
    "kvtally.live": "Runs real models: needs `kvtally[hf]`.",
    "kvtally.traffic": "Reads real traffic: needs `kvtally[traffic]`.",
}
HEAD = """# Python

Written from the docstrings by `python tests/docs/python_api.py`; each example is a doctest.
"""


def prose(text: str) -> str:
    """A docstring as Markdown: examples fenced, signs that Markdown would read escaped outside of code."""
    parts = []
    for part in re.split(r"\n\n(?=>>> )|\n(?=>>> )", text):
        if part.startswith(">>> "):
            parts.append(f"```pycon\n{part}\n```")
        else:
            pieces = re.split(r"(`[^`]*`)", part)
            parts.append("".join(x if x.startswith("`") else re.sub(r"([*<|])", r"\\\1", x) for x in pieces))
    return "\n\n".join(parts).replace("\n```\n\n```pycon\n", "\n")


def signature(name: str, thing: object) -> str:
    """How it is called, one parameter a line where that is long; of an enum its members."""
    if isinstance(thing, type) and issubclass(thing, Enum):
        return " ".join(member.value for member in thing)
    try:
        called = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", str(inspect.signature(thing)))  # type: ignore[arg-type]
    except ValueError:
        return name
    called = re.sub(r"<(?:[^<>]|<[^<>]*>)*>", "…", called).removesuffix(" -> None" if isinstance(thing, type) else "")
    if len(called) < 90:
        return name + called
    return name + re.sub(r", (?=\*,|\*{0,2}\w+(?:: | ?=))", ",\n    ", called).replace("(", "(\n    ", 1)


def methods(thing: object) -> list[str]:
    """A line for each public method and property that a record defines itself."""
    if not isinstance(thing, type) or issubclass(thing, Enum):
        return []
    said = []
    for name, member in vars(thing).items():
        text = inspect.getdoc(member) if callable(member) or isinstance(member, property | classmethod) else None
        if text and not name.startswith("_"):
            said.append(f"- `{name}`: {prose(text.split(chr(10), 1)[0])}")
    return said


def public(module: ModuleType) -> list[str]:
    """The public names of a module."""
    return list(getattr(module, "__all__", []))


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for place, needs in MODULES.items():
        module = importlib.import_module(place)
        parts.append(f"## {place}\n\n{needs}\n" if public(module) else "")
        for name in public(module):
            thing = getattr(module, name)
            listed = methods(thing)
            parts.append(
                f"### {name}\n\n```text\n{signature(name, thing)}\n```\n\n{prose(inspect.getdoc(thing) or '')}\n"
                + ("\n" + "\n".join(listed) + "\n" if listed else "")
            )
    return "\n".join(part for part in parts if part)


if __name__ == "__main__":
    PAGE.write_text(page())
