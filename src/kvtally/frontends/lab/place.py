"""Where the learner is: the files in their folder, the steps passed, the hints seen."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, UnreadableError
from kvtally.frontends.lab.steps import STEPS

HERE = Path(__file__).parent
STATE = ".kvtally-lab.json"
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
    """Write kv.py, LESSON.md and the place; InputError where kv.py is there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "kv.py").open("x", encoding="utf-8") as file:
            file.write(text_of("kv.py"))
        (folder / "LESSON.md").write_text(text_of("LESSON.md"), encoding="utf-8")
        write(folder, Place())
    except FileExistsError:
        raise InputError(
            f"{folder / 'kv.py'} is there already, and it is not overwritten",
            hint=f"go on with `kvtally lab check {folder / 'kv.py'}`, or start over with `kvtally lab reset`",
        ) from None
    except OSError as error:
        raise UnreadableError(f"{folder} cannot be written: {error.strerror}") from None


def reset(folder: Path) -> Path | None:
    """Put the skeleton back in place of kv.py; the file that was there is kept under the name returned."""
    own = folder / "kv.py"
    kept = None
    if own.exists():
        kept = next(p for p in (folder / f"kv-before-reset-{n}.py" for n in range(1, 10_000)) if not p.exists())
        own.rename(kept)
    start(folder)
    return kept


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
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read: {error}", hint=f"delete {path} to forget the place") from None
    return _checked(path, data)


def _checked(path: Path, data: Any) -> Place:
    known = isinstance(data, dict) and isinstance(data.get("passed"), list) and isinstance(data.get("hints"), dict)
    if not known or not {*data["passed"], *data["hints"]} <= NAMES:
        raise UnreadableError(
            f"{path}: not a place of this lesson, expected `passed` and `hints` by step",
            hint=f"delete {path} to forget the place",
        )
    return Place(passed=tuple(data["passed"]), hints=data["hints"])


def write(folder: Path, place: Place) -> None:
    """Remember a place, in one move: a reader never meets half a file."""
    path = folder / STATE
    new = path.with_name(f"{STATE}.new")
    try:
        new.write_text(json.dumps(asdict(place), indent=1) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be written: {error.strerror}") from None


def solution(name: str) -> str:
    """The reference solution of one step, its function as it stands."""
    text = text_of("reference.py")
    node = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name)
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
