"""Right solutions, each written in another way: all pass every step, with and without `strict`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtally.frontends.lab.grader import PASSED, check
from lab.files import REFERENCE, named, upon_reference

RIGHT = named("right")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("path", RIGHT, ids=lambda p: p.stem)
def test_a_right_solution_passes_every_step(path: Path, strict: bool) -> None:
    for seed in (1,) if strict else (1, 2, 3):
        report = check(upon_reference(path), seed=seed, strict=strict)
        alarms = [f"{o.name}: {o.message}" for o in report.outcomes if o.state != PASSED]
        assert alarms == [], f"seed {seed}"
        assert report.stopped is None and len(report.outcomes) == 16


@pytest.mark.parametrize("seed", range(20))
def test_the_reference_passes_whatever_the_seed(seed: int) -> None:
    report = check(REFERENCE.read_text(), seed=seed)
    assert [o.message for o in report.outcomes if o.state != PASSED] == []


def test_a_leaner_solution_is_praised() -> None:
    path = next(p for p in RIGHT if p.stem == "lean_queries")
    step = check(upon_reference(path), seed=1).outcomes[4]
    assert step.state == PASSED and step.seen is not None and step.formula is not None and step.seen < step.formula
    assert step.remark.startswith(f"leaner than asked, and right: {step.seen:,} multiplications for {step.formula:,}")


def test_tokens_projected_before_the_first_query_are_remarked_on() -> None:
    path = next(p for p in RIGHT if p.stem == "prompt_first")
    assert "all tokens are projected before the first query" in check(upon_reference(path), seed=1).outcomes[6].remark


def test_there_are_enough_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nright solutions: {len(RIGHT)}, false alarms: none")  # noqa: T201
    assert len(RIGHT) >= 8
