"""Wrong solutions: each is caught at its step, with its own sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtally.frontends.lab.grader import FAILED, PASSED, check
from lab.files import named, said, upon_reference

WRONG = named("wrong")
SEEDS = (1, 2, 3)


@pytest.mark.parametrize("path", WRONG, ids=lambda p: p.stem)
def test_a_wrong_solution_is_caught_at_its_step_with_its_sentence(path: Path) -> None:
    step, sentence = said(path)
    for seed in SEEDS:
        report = check(upon_reference(path), seed=seed)
        told = next((o for o in report.outcomes if o.name == step), None)
        assert told is not None and told.state == FAILED, f"seed {seed}: {step} was {told and told.state}"
        assert sentence in told.message, f"seed {seed}: {told.message}"
        before = report.outcomes[: told.number - 1]
        assert all(o.state == PASSED for o in before if o.bonus or not told.bonus), f"seed {seed}: caught early"


def test_there_are_enough_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    sentences = {said(path) for path in WRONG}
    with capsys.disabled():
        print(f"\nwrong solutions: {len(WRONG)}, sentences: {len(sentences)}, seeds each: {len(SEEDS)}")  # noqa: T201
    assert len(WRONG) >= 30
