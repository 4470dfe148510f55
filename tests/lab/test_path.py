"""A learner's path, file by file: each step first fails with its message, then passes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kvtally.frontends.lab.grader import PASSED, UNWRITTEN, WAITING, check
from kvtally.frontends.lab.steps import STEPS
from lab.files import REFERENCE

SKELETON = REFERENCE.with_name("kv.py")
LESSON = [step for step in STEPS if not step.bonus]


def functions(text: str) -> dict[str, tuple[int, int]]:
    return {n.name: (n.lineno, n.end_lineno or 0) for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}


def written(steps: list[str]) -> str:
    """The skeleton, the functions of these steps filled in as the reference has them."""
    skeleton, reference = SKELETON.read_text().splitlines(), REFERENCE.read_text().splitlines()
    places, bodies = functions(SKELETON.read_text()), functions(REFERENCE.read_text())
    lines = list(skeleton)
    for name in sorted(steps, key=lambda n: -places[n][0]):
        (first, last), (start, end) = places[name], bodies[name]
        lines[first - 1 : last] = reference[start - 1 : end]
    first_import = "from collections.abc import Callable"
    return "\n".join(lines).replace(first_import, f"import math\nimport struct\n{first_import}")


@pytest.mark.parametrize("done", range(len(LESSON) + 1))
def test_each_step_first_fails_with_its_message_and_then_passes(done: int, tmp_path: Path) -> None:
    names = [step.name for step in LESSON]
    report = check(written(names[:done]), seed=done)
    states = [o.state for o in report.outcomes]
    assert states[:done] == [PASSED] * done, [o.message for o in report.outcomes]
    if done == len(LESSON):
        assert report.stopped is None
        assert [o.state for o in report.outcomes if o.bonus] == [UNWRITTEN] * 5
        return
    stopped = report.stopped
    assert stopped is not None and stopped.number == done + 1
    assert stopped.message == "still to be written"
    assert states[done + 1 :] == [WAITING] * (len(STEPS) - done - 1)


def test_bonus_steps_come_in_any_order() -> None:
    names = [step.name for step in LESSON] + ["run_with_window", "run_batch"]
    report = check(written(names), seed=1)
    assert [o.name for o in report.outcomes if o.bonus and o.state == PASSED] == ["run_with_window", "run_batch"]


def test_every_step_has_a_function_in_the_skeleton_and_its_number_in_the_docstring() -> None:
    tree = ast.parse(SKELETON.read_text())
    found = {n.name: ast.get_docstring(n) or "" for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert list(found) == [step.name for step in STEPS] == list(functions(REFERENCE.read_text()))
    for step in STEPS:
        assert found[step.name].startswith(f"Step {step.number}. ")


@pytest.mark.parametrize("name", ["kv.py", "reference.py", "child.py", "provenance.py", "isolation.py"])
def test_the_learners_side_is_python_3_9(name: str) -> None:
    ast.parse(REFERENCE.with_name(name).read_text(), feature_version=(3, 9))
