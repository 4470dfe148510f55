"""Numbers that remember: values as floats have them, kinds and terms as the lesson counts them."""

from __future__ import annotations

import copy
import json
import math
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally.frontends.lab.provenance import PRODUCTS, Ledger, Number

SMALL = st.floats(min_value=-8, max_value=8, allow_nan=False).filter(lambda x: abs(x) > 1e-3)
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]


def number(ledger: Ledger, value: float, kind: str = "a", token: int | None = None) -> Number:
    return Number(ledger, ledger.add(value, kind, token))


@pytest.mark.parametrize("operation", OPERATORS)
@given(a=SMALL, b=SMALL)
def test_arithmetic_is_that_of_floats(operation: object, a: float, b: float) -> None:
    ledger = Ledger()
    right = operation(a, b)  # type: ignore[operator]
    for left in (number(ledger, a), a):
        for other in (number(ledger, b), b):
            if type(left) is Number or type(other) is Number:
                assert float(operation(left, other)) == right  # type: ignore[operator]


@given(a=SMALL, b=SMALL)
def test_comparing_and_showing_are_those_of_floats(a: float, b: float) -> None:
    ledger = Ledger()
    x, y = number(ledger, a), number(ledger, b)
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert compare(x, y) is compare(x, b) is compare(a, b)
    assert repr(x) == repr(a) and f"{x:.3f}" == f"{a:.3f}" and hash(x) == hash(a) and bool(x) is bool(a)
    assert max([x, y]) == max(a, b) and sorted([x, y])[0] == min(a, b)
    assert isinstance(x, float) and copy.deepcopy([x])[0] is x and +x is x
    assert ledger.revealed == 0
    assert (float(-x), float(abs(x)), math.floor(x), round(x, 1)) == (-a, abs(a), math.floor(a), round(a, 1))
    assert ledger.revealed == 4


@pytest.mark.parametrize(("kinds", "term"), [(kinds, term) for kinds, (term, _) in PRODUCTS.items()])
def test_a_product_is_counted_under_its_term_whichever_way_round(kinds: tuple[str, str], term: str) -> None:
    ledger = Ledger()
    left, right = (number(ledger, 0.5, kind, 3) for kind in kinds)
    product = left * right
    assert right * left == product == 0.25
    assert ledger.report()["terms"] == {term: 2}
    assert ledger.kinds[product._index] == PRODUCTS[kinds][1]


def test_constants_scaling_and_softmax_are_not_counted() -> None:
    ledger = Ledger()
    score, out = number(ledger, 0.5, "score", 1), number(ledger, 0.25, "out", 1)
    for free in (score * 0.5, 2 * score, score / 3, score / score, score * score, out / score, out * score, 1 / score):
        assert type(free) is Number
    assert ledger.report()["terms"] == {}


def test_what_no_term_has_is_counted_as_other() -> None:
    ledger = Ledger()
    q, v = number(ledger, 0.5, "q", 1), number(ledger, 0.25, "v", 1)
    _ = q * v, q / v, q**2, q**v
    assert ledger.report()["terms"] == {"other": 4}


def test_the_triangle_is_drawn_by_the_query_that_attends() -> None:
    ledger = Ledger()
    for step, tokens in ((0, (0,)), (1, (0, 1))):
        for token in tokens:
            _ = number(ledger, 0.5, "x", token) * number(ledger, 0.5, "w_k")
        _ = number(ledger, 0.5, "q", step) * number(ledger, 0.5, "k", 0)
    assert ledger.report()["served"] == [[0, 0, "k_proj", 1], [1, 0, "k_proj", 1], [1, 1, "k_proj", 1]]


def test_math_keeps_the_provenance_in_the_subprocess() -> None:
    """In a process of its own: `teach_math` changes the module for good."""
    code = """
import json, math
from kvtally.frontends.lab.provenance import Ledger, Number, teach_math
def all_of(x):
    return [math.exp(x), math.sqrt(x), math.log(x), math.tanh(x), math.pow(x, .5), math.fsum([x, x]), math.fabs(-x)]
plain = all_of(.5)
teach_math()
ledger = Ledger()
x = Number(ledger, ledger.add(.5, "score", 2))
kept = all_of(x)
print(json.dumps([[ledger.values[n._index] for n in kept] == plain == all_of(.5),
                  {ledger.kinds[n._index] for n in kept} == {"score"}, ledger.report()["terms"] == {}]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [True, True, True]


def test_a_call_that_never_ends_its_arithmetic_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvtally.frontends.lab.provenance.LONGEST", 100)
    ledger = Ledger()
    x = number(ledger, 0.5)
    with pytest.raises(OverflowError, match="more than 100 operations"):
        for _ in range(200):
            x = x + 1
    ledger.begin()
    assert float(x + 1) > 0


def test_the_module_needs_nothing_of_kvtally() -> None:
    for name in ("provenance.py", "isolation.py"):
        text = (Path(__file__).parents[2] / "src" / "kvtally" / "frontends" / "lab" / name).read_text()
        assert not re.search("^(import|from) kvtally", text, re.MULTILINE)
