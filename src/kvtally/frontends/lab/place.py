"""Where the learner is: the files in their folder, the steps passed, the hints seen."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, UnreadableError
from kvtally.frontends.lab.steps import STEPS
from kvtally.frontends.output import naming, whole, write_whole

HERE = Path(__file__).parent
STATE = ".kvtally-lab.json"
FILES = {  # what a lesson begins with, and what to do where it is there already
    "kv.py": "go on with `kvtally lab check {}`, or start over with `kvtally lab reset`",
    "LESSON.md": "move it away, or start in another folder",
}
NAMES = frozenset(step.name for step in STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is remembered of a learner's folder: names of the steps passed, number of hints seen a step."""

    passed: tuple[str, ...] = ()
    hints: Mapping[str, int] = field(default_factory=dict)

    def with_passed(self, names: list[str]) -> Place:
        """The place after these steps have passed as well."""
        return replace(self, passed=tuple(s.name for s in STEPS if s.name in {*self.passed, *names}))

    @property
    def next(self) -> str:
        """The first step that has not passed; empty when all have."""
        return next((step.name for step in STEPS if step.name not in self.passed), "")


def start(folder: Path) -> None:
    """Write kv.py, LESSON.md and the place; InputError where another file than the lesson's has one of the names."""
    for name, hint in FILES.items():
        if _another(folder / name):
            problem = f"{folder / name} is there already, and it is not overwritten"
            raise InputError(problem, hint=hint.format(folder / name))
    _begin(folder)


def reset(folder: Path) -> Path | None:
    """Put the skeleton in place of kv.py and forget the steps; what was there is kept under the name returned."""
    own, kept = folder / "kv.py", None
    if _another(own):
        kept = next(p for p in (folder / f"kv-before-reset-{n}.py" for n in range(1, 10_000)) if not os.path.lexists(p))
        with whole(own) as new:
            new.write_text(text_of("kv.py"), encoding="utf-8")
            own.rename(kept)
    _begin(folder)
    return kept


def _another(path: Path) -> bool:
    """Whether something is there that the lesson did not write, or that was changed since."""
    try:
        return path.read_bytes() != text_of(path.name).encode()
    except OSError:
        return os.path.lexists(path)


def _begin(folder: Path) -> None:
    with naming(folder), suppress(FileExistsError):
        folder.mkdir(parents=True)
    for name in FILES:
        if not os.path.lexists(folder / name):
            write_whole(folder / name, text_of(name))
    write(folder, Place())


def text_of(name: str) -> str:
    """The text of a file that comes with the lesson."""
    return (HERE / name).read_text(encoding="utf-8")


def learner_text(file: Path) -> str:
    """The text of the learner's file."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "`kvtally lab start DIR` writes one; then work in DIR, or name the file: kvtally lab check DIR/kv.py"
        raise UnreadableError(f"{file}: no such file", hint=hint) from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{file}: not text in UTF-8, expected a Python file") from None
    except OSError as error:
        raise UnreadableError(f"{file}: cannot be read: {error.strerror}") from None


def read(folder: Path) -> Place:
    """What is remembered in a folder."""
    path = folder / STATE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnreadableError(
            f"{folder}: no lesson was started here", hint="`kvtally lab start DIR` begins one; then work in DIR"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: cannot be read: {error}", hint=f"delete {path} to forget the place") from None
    return _checked(path, data)


def _checked(path: Path, data: Any) -> Place:
    match data:
        case {"passed": list(passed), "hints": dict(hints)} if (
            all(isinstance(name, str) for name in passed)
            and {*passed, *hints} <= NAMES
            and all(type(seen) is int and seen >= 0 for seen in hints.values())
        ):
            return Place(passed=tuple(passed), hints=hints)
    raise UnreadableError(
        f"{path}: not a place of this lesson, expected `passed` and `hints` by step",
        hint=f"delete {path} to forget the place",
    )


def write(folder: Path, place: Place) -> None:
    """Remember a place, in one move: a reader never meets half a file."""
    write_whole(folder / STATE, json.dumps(asdict(place), indent=1) + "\n")


def solution(name: str) -> str:
    """The reference solution of one step, its function as it stands."""
    text = text_of("reference.py")
    node = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name)
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
