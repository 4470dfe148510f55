"""Numbers that remember where they came from, and the ledger of what was multiplied."""

# Runs beside the learner's code as well: standard library of Python 3.9, no import from kvtally.
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

#: What a product of two kinds is: the term it counts for, and the kind of number it makes.
PRODUCTS = {
    ("x", "w_q"): ("q_proj", "q"),
    ("x", "w_k"): ("k_proj", "k"),
    ("x", "w_v"): ("v_proj", "v"),
    ("q", "k"): ("qk", "score"),
    ("score", "v"): ("pv", "out"),
    ("a", "b"): ("mul", "product"),
    ("u", "w"): ("dot", "sum"),
}
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
INPUTS = frozenset({kind for pair in PRODUCTS for kind in pair} - {"score"})
FREE = frozenset({("score", "score"), ("out", "score")})  # softmax's own: normalising, not counted

UNARY: dict[str, Callable[[float], float]] = {
    "neg": operator.neg, "abs": abs, "exp": math.exp, "exp2": lambda x: math.pow(2.0, x), "expm1": math.expm1,
    "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "tanh": math.tanh,
}  # fmt: skip
BINARY: dict[str, Callable[[float, float], float]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": math.pow,
    "floordiv": operator.floordiv, "mod": operator.mod,
}  # fmt: skip
ERRORS = {e.__name__: e for e in (ZeroDivisionError, OverflowError, ValueError)}
LONGEST = 400_000  # operations on numbers in one call; more is a loop that went astray


class Ledger:
    """Every number by index, and every multiplication of a call with its term and the token it served.

    A multiplication by a plain number (a constant that comes from no input) is not counted, nor are
    the divisions and products that normalise a softmax. Any other product of two numbers that
    come from inputs is counted: under its term, or as `other` where the lesson has no term for it.
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        self.kinds: list[str] = []
        self.tokens: list[int | None] = []
        self.begin()

    def begin(self) -> None:
        """A new call: what was seen is forgotten, the numbers stay (a file may have kept some)."""
        self._before = len(self.values)
        self.terms: dict[str, int] = {}
        self.revealed = 0
        self._projected: dict[tuple[int, str], int] = {}
        self._served: dict[tuple[int, int, str], int] = {}

    def add(self, value: float, kind: str, token: int | None) -> int:
        """The index of a new number."""
        if len(self.values) - self._before >= LONGEST:
            raise OverflowError(f"more than {LONGEST:,} operations in one call")
        self.values.append(value)
        self.kinds.append(kind)
        self.tokens.append(token)
        return len(self.values) - 1

    def value(self, index: int) -> float:
        """The plain value: comparing and printing need it."""
        return self.values[index]

    def reveal(self, index: int) -> float:
        """The plain value, leaving the ledger: what is computed from it can no longer be seen."""
        self.revealed += 1
        return self.values[index]

    def unary(self, name: str, index: int) -> int:
        """The index of a function of one number; kind and token stay."""
        return self.add(float(UNARY[name](self.values[index])), self.kinds[index], self.tokens[index])

    def binary(self, name: str, left: Any, right: Any) -> int:
        """The index of `left` op `right`, each an index `[i]` or a plain number; at least one is an index."""
        a, b = (self._kept(side) for side in (left, right))
        value = float(BINARY[name](a[0], b[0]))
        if a[1] and b[1]:
            kind, token = self._joined(name, a, b)
        else:
            kind, token = (a[1], a[2]) if a[1] else (b[1], b[2])
            if name == "pow" and a[1] and b[0] >= 2:
                self._count("other", None)
        return self.add(value, kind, token)

    def report(self) -> dict[str, Any]:
        """What was seen: multiplications by term, vectors made by step and token, numbers that left."""
        for (token, term), n in self._projected.items():  # projected and never asked for
            self._served[-1, token, term] = self._served.get((-1, token, term), 0) + n
        self._projected = {}
        served = [[step, token, term, n] for (step, token, term), n in sorted(self._served.items())]
        return {"terms": dict(sorted(self.terms.items())), "served": served, "revealed": self.revealed}

    def _kept(self, side: Any) -> tuple[float, str, int | None]:
        if isinstance(side, list):
            return self.values[side[0]], self.kinds[side[0]], self.tokens[side[0]]
        return float(side), "", None

    def _joined(self, name: str, a: Any, b: Any) -> tuple[str, int | None]:
        """Kind and token of a number made of two that come from inputs; a product is counted."""
        token = a[2] if a[2] == b[2] else None
        if name in ("add", "sub", "mod", "floordiv"):
            return (a[1] if a[1] == b[1] else "mixed"), token
        for pair in ((a, b), (b, a)):
            kinds = (pair[0][1], pair[1][1])
            if kinds in FREE and (name == "mul" or pair[0] is a):
                return kinds[0], token
            if name == "mul" and kinds in PRODUCTS:
                term, kind = PRODUCTS[kinds]
                self._count(term, pair[0][2])
                return kind, pair[0][2]
        if name != "div" or b[1] in INPUTS:  # a division by 1/b would be a product in disguise
            self._count("other", None)
        return "mixed", token

    def _count(self, term: str, token: int | None) -> None:
        self.terms[term] = self.terms.get(term, 0) + 1
        if token is None:
            return
        if term in PROJECTIONS:
            self._projected[token, term] = self._projected.get((token, term), 0) + 1
        elif term == "qk" and self._projected:  # this query is what the projections since the last one were for
            for (made, projection), n in self._projected.items():
                key = (token, made, projection)
                self._served[key] = self._served.get(key, 0) + n
            self._projected = {}


class Number:
    """A number of a ledger. It answers every arithmetic operator, and `float(x)` takes it out."""

    __slots__ = ("_index", "_ledger")
    __class__ = float  # type: ignore[assignment]  # isinstance(x, float) holds, as for the lesson's plain floats

    def __init__(self, ledger: Any, index: int) -> None:
        self._ledger = ledger
        self._index = index

    def __float__(self) -> float:
        return float(self._ledger.reveal(self._index))

    def __int__(self) -> int:
        return int(float(self))

    __trunc__ = __int__

    def __floor__(self) -> int:
        return math.floor(float(self))

    def __ceil__(self) -> int:
        return math.ceil(float(self))

    def __round__(self, digits: int | None = None) -> float:
        return round(float(self), digits)

    def __repr__(self) -> str:
        return repr(self._ledger.value(self._index))

    def __format__(self, spec: str) -> str:
        return format(self._ledger.value(self._index), spec)

    def __hash__(self) -> int:
        return hash(self._ledger.value(self._index))

    def __bool__(self) -> bool:
        return bool(self._ledger.value(self._index))

    def __abs__(self) -> Number:
        return Number(self._ledger, self._ledger.unary("abs", self._index))

    def __neg__(self) -> Number:
        return Number(self._ledger, self._ledger.unary("neg", self._index))

    def __pos__(self) -> Number:
        return self

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, _: Any) -> Number:
        return self

    def is_integer(self) -> bool:
        return float(self._ledger.value(self._index)).is_integer()


def _operand(other: Any) -> Any:
    """What a ledger takes for `other`: an index, a plain number, or NotImplemented."""
    if type(other) is Number:
        return [other._index]
    return other if isinstance(other, (int, float)) else NotImplemented


def _binary(name: str, swapped: bool) -> Callable[[Number, Any], Any]:
    def apply(self: Number, other: Any, *_: Any) -> Any:
        theirs = _operand(other)
        if theirs is NotImplemented:
            return NotImplemented
        left, right = (theirs, [self._index]) if swapped else ([self._index], theirs)
        return Number(self._ledger, self._ledger.binary(name, left, right))

    return apply


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Number, Any], Any]:
    def apply(self: Number, other: Any) -> Any:
        if type(other) is Number:
            other = other._ledger.value(other._index)
        elif not isinstance(other, (int, float)):
            return NotImplemented
        return test(self._ledger.value(self._index), other)

    return apply


for _name in BINARY:
    _dunder = "truediv" if _name == "div" else _name
    setattr(Number, f"__{_dunder}__", _binary(_name, swapped=False))
    setattr(Number, f"__r{_dunder}__", _binary(_name, swapped=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Number, f"__{_name}__", _compared(getattr(operator, _name)))


def teach_math() -> None:
    """Make the functions of `math` keep the provenance of a Number; other values as before."""
    for name in set(UNARY) - {"neg", "abs"}:
        if hasattr(math, name):
            setattr(math, name, _keeping(name, getattr(math, name)))
    plain_pow, plain_fabs = math.pow, math.fabs
    kept: dict[str, Callable[..., Any]] = {
        "pow": lambda a, b: a**b if Number in (type(a), type(b)) else plain_pow(a, b),
        "fabs": lambda x: abs(x) if type(x) is Number else plain_fabs(x),
        "fsum": _summing(math.fsum),
        "sumprod": lambda p, q: sum(a * b for a, b in zip(p, q)),  # noqa: B905  # Python 3.9 has no strict
        "fma": lambda a, b, c: a * b + c,
    }
    for name, function in kept.items():
        if hasattr(math, name):
            setattr(math, name, function)


def _keeping(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: Any, *rest: Any) -> Any:
        return Number(x._ledger, x._ledger.unary(name, x._index)) if type(x) is Number else plain(x, *rest)

    return function


def _summing(plain: Callable[..., float]) -> Callable[..., Any]:
    def fsum(values: Any) -> Any:
        values = list(values)
        return sum(values) if any(type(v) is Number for v in values) else plain(values)

    return fsum
