"""The steps: their formulas, their inputs, and mistakes that cannot be taken for one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvtally.frontends.lab import expected
from kvtally.frontends.lab.diagnose import alike, right_answer
from kvtally.frontends.lab.hints import HINTS
from kvtally.frontends.lab.mistakes import mistakes
from kvtally.frontends.lab.steps import STEPS, Case, Step, plain, seed_from

BY_NAME = {step.name: step for step in STEPS}
SEEDS = range(40)


def sizes(case: Case) -> dict[str, int]:
    """The letters of the sizes: d, n, N, H, G, window."""
    parts = [part.split(" = ") for part in case.sizes.split(", ") if " = " in part]
    return {name: int(value) for name, value in parts if value.isdigit()}


def triangular(n: int) -> int:
    return n * (n + 1) // 2


def in_window(n: int, width: int) -> int:
    return sum(min(t, width) for t in range(1, n + 1))


FORMULAS: dict[str, Callable[[dict[str, int]], int]] = {
    "dot": lambda s: s["d"],
    "project": lambda s: 3 * s["d"] ** 2,
    "attend": lambda s: 2 * s["n"] * s["d"],
    "step_without_cache": lambda s: 3 * s["n"] * s["d"] ** 2 + 2 * s["n"] * s["d"],
    "run_without_cache": lambda s: (3 * s["d"] ** 2 + 2 * s["d"]) * triangular(s["N"]),
    "run_with_cache": lambda s: 3 * s["d"] ** 2 * s["N"] + 2 * s["d"] * triangular(s["N"]),
    "to_fp16": lambda s: 3 * s["d"] ** 2 * s["N"] + 2 * s["d"] * triangular(s["N"]),
    "run_with_window": lambda s: 3 * s["d"] ** 2 * s["N"] + 2 * s["d"] * in_window(s["N"], s["window"]),
    "attend_grouped": lambda s: 2 * s["H"] * s["n"] * s["d"],
    "run_bidirectional": lambda s: 3 * s["d"] ** 2 * s["N"] + 2 * s["d"] * s["N"] ** 2,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_step_must_show_the_multiplications_of_its_formula(name: str) -> None:
    for seed in SEEDS:
        for case in BY_NAME[name].cases(seed):
            if case.terms is not None:
                assert sum(case.terms.values()) == FORMULAS[name](sizes(case)), case.sizes


def test_the_lesson_of_a_hundred_tokens() -> None:
    assert expected.table([100], 64) == [[100, 62_054_400 + 646_400, 1_228_800 + 646_400]]
    assert expected.memory(100, 1, 1, 64, 2) == [12_800, 25_600]


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.name)
def test_one_seed_is_one_input_and_another_seed_another(step: Step) -> None:
    assert repr(step.cases(7)) == repr(step.cases(7))  # a NaN is not equal to itself
    different = {repr(step.cases(seed)) for seed in SEEDS}
    assert len(different) > len(SEEDS) // 2  # a few small whole numbers can be drawn twice


def test_no_number_of_an_input_is_zero() -> None:
    def numbers(arg: Any) -> list[float]:
        return [n for item in arg for n in numbers(item)] if isinstance(arg, list | tuple) else [arg]

    for seed in SEEDS:
        for case in BY_NAME["run_with_cache"].cases(seed):
            assert all(numbers(plain(case.args)))


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.name)
def test_no_two_mistakes_of_a_call_give_the_same_values(step: Step) -> None:
    """Otherwise a sentence could name what was not done; mistakes that are none on an input are left out."""
    for seed in SEEDS:
        for case in step.cases(seed):
            store = expected.to_fp16 if case.own else None
            told: list[tuple[str, Any]] = []
            for sentence, value in mistakes(case.call, tuple(map(plain, case.args)), store):
                try:
                    wrong = value()
                except (ArithmeticError, ValueError, IndexError):
                    continue
                if alike(wrong, right_answer(case)):
                    continue
                twins = [other for other, known in told if other != sentence and alike(wrong, known)]
                if step.name not in TWINS:
                    assert not twins, f"seed {seed}, {case.sizes}: {sentence!r} is {twins}"
                told.append((sentence, wrong))


#: Small whole numbers coincide now and then: half the elements may be those of one layer.
TWINS = ("memory", "valid_after_edit", "to_fp16", "same")


def test_every_step_has_hints() -> None:
    assert list(HINTS) == [step.name for step in STEPS]
    assert all(HINTS.values())


def test_a_name_is_a_seed_of_its_own() -> None:
    names = [f"learner {n}" for n in range(200)]
    assert len({seed_from(name) for name in names}) == len(names)
    assert seed_from("Ada Lovelace") == seed_from(" ada lovelace ")
