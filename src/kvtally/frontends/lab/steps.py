"""The steps of the lesson: what each asks, the calls that poke it, the multiplications it must show."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvtally.core.decoder import Decoder, Layer, lesson
from kvtally.core.mixer import Attention
from kvtally.core.passes import Pass, Passes, cached, uncached
from kvtally.frontends.lab import expected
from kvtally.pure.count_closed import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A number of an input that remembers what it is: its kind and the token it belongs to."""

    value: float
    kind: str
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call: its arguments, the sizes in words, the multiplications by term (None: not compared)."""

    call: str
    args: tuple[Any, ...]
    names: tuple[str, ...]
    sizes: str
    terms: Mapping[str, int] | None = None
    own: Mapping[str, str] = field(default_factory=dict)  # arguments that are functions of the learner's file
    again: bool = False  # the same call as before, to see whether anything was left behind


Make = Callable[[random.Random], list[Case]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the lesson; `formula` is what it must show, in the lesson's letters."""

    number: int
    name: str
    formula: str
    make: Make
    bonus: bool = False

    def cases(self, seed: int) -> list[Case]:
        """The calls for a seed: the same seed gives the same calls, and both loops the same tokens."""
        inputs = "run_without_cache" if self.name == "run_with_cache" else self.name
        return self.make(random.Random(f"{seed}:{inputs}"))


def seed_from(name: str) -> int:
    """The seed that belongs to a name, so that each learner of a class has inputs of their own.

    >>> seed_from("Ada") == seed_from("ada ") != seed_from("Grace")
    True
    """
    return int.from_bytes(hashlib.sha256(name.strip().casefold().encode()).digest()[:4], "big") % 1_000_000


def plain(arg: Any) -> Any:
    """An argument with its numbers plain."""
    if isinstance(arg, list | tuple):
        return type(arg)(plain(item) for item in arg)
    return arg.value if isinstance(arg, Traced) else arg


def _number(r: random.Random) -> float:
    """A short number between -1 and 1, never 0: what is shown can be typed in again."""
    return r.choice((-1, 1)) * r.randint(11, 99) / 100


def _vector(r: random.Random, d: int, kind: str, token: int | None = None) -> list[Traced]:
    return [Traced(value=_number(r), kind=kind, token=token) for _ in range(d)]


def _tokens(r: random.Random, n: int, d: int, first: int = 0) -> list[list[Traced]]:
    return [_vector(r, d, "x", first + j) for j in range(n)]


def _weights(r: random.Random, d: int) -> tuple[list[list[Traced]], ...]:
    return tuple([_vector(r, d, kind) for _ in range(d)] for kind in ("w_q", "w_k", "w_v"))


def _by_term(decoder: Decoder, passes: Passes, kernel: str = "causal") -> dict[str, int]:
    return {str(term): n for term, n in count(decoder, passes, kernel=kernel).by("term").items()}


def _mul(r: random.Random) -> list[Case]:
    pairs = [(Traced(value=_number(r), kind="a"), Traced(value=_number(r), kind="b")) for _ in range(3)]
    return [Case(call="mul", args=p, names=("a", "b"), sizes="two numbers", terms={"mul": 1}) for p in pairs]


def _dot(r: random.Random) -> list[Case]:
    return [
        Case(call="dot", args=(_vector(r, d, "u"), _vector(r, d, "w")), names=("u", "v"), sizes=f"d = {d}",
             terms={"dot": d})
        for d in r.sample(range(3, 9), 2)
    ]  # fmt: skip


def _project(r: random.Random) -> list[Case]:
    return [
        Case(call="project", args=(_vector(r, d, "x", 0), _weights(r, d)), names=("x", "W"), sizes=f"d = {d}",
             terms=dict.fromkeys(("q_proj", "k_proj", "v_proj"), d * d))
        for d in r.sample(range(3, 6), 2)
    ]  # fmt: skip


def _attend(r: random.Random) -> list[Case]:
    cases = []
    for d, n in zip(r.sample(range(3, 6), 2), r.sample(range(2, 7), 2), strict=True):
        keys, values = ([_vector(r, d, kind, j) for j in range(n)] for kind in "kv")
        cases.append(
            Case(call="attend", args=(_vector(r, d, "q", n - 1), keys, values), names=("q", "K", "V"),
                 sizes=f"d = {d}, n = {n}", terms={"qk": n * d, "pv": n * d})
        )  # fmt: skip
    return cases


def _loops(name: str, letter: str, passes: Callable[[int], Passes], kernel: str = "causal") -> Make:
    """Calls of a function of (xs, W): one, the same again, one of another size."""

    def make(r: random.Random) -> list[Case]:
        cases = []
        for d, n in zip(r.sample(range(3, 6), 2), r.sample(range(3, 7), 2), strict=True):
            terms = _by_term(lesson(d), passes(n), kernel)
            args = (_tokens(r, n, d), _weights(r, d))
            sizes = f"d = {d}, {letter} = {n}"
            for again in (False, True):
                cases.append(Case(call=name, args=args, names=("xs", "W"), sizes=sizes, terms=terms, again=again))
        return cases[:3]

    return make


def _same(r: random.Random) -> list[Case]:
    d, n = r.randint(3, 5), r.randint(3, 5)
    a = [[_number(r) for _ in range(d)] for _ in range(n)]
    at, i = r.randrange(n), r.randrange(d)

    def changed(by: float, row: int, column: int) -> list[list[float]]:
        return [[x + by if (j, k) == (row, column) else x for k, x in enumerate(v)] for j, v in enumerate(a)]

    others = {
        "two equal lists": a,
        "1e-3 added to one number": changed(1e-3, at, i),
        "1e-3 taken from the last number": changed(-1e-3, n - 1, d - 1),
        "1e-3 added to the first number": changed(1e-3, 0, 0),
        "1e-12 added to one number": changed(1e-12, at, i),
        "the last vector missing": a[:-1],
        "the last number of each vector missing": [v[:-1] for v in a],
        "one number a NaN": changed(float("nan"), at, i),
        "equal vectors, the first two swapped": [a[1], a[0], *a[2:]],
    }
    return [Case(call="same", args=(a, b, 1e-9), names=("a", "b", "tol"), sizes=s) for s, b in others.items()]


def _table(r: random.Random) -> list[Case]:
    asked = [([10, 100], 64), (sorted(r.sample(range(2, 12), 3)), r.randint(2, 5)), ([1], r.randint(2, 5))]
    return [Case(call="table", args=a, names=("lengths", "d"), sizes=f"lengths = {a[0]}, d = {a[1]}") for a in asked]


def _rounding(r: random.Random) -> list[Case]:
    numbers = [1 / 3, -2 / 3, 1 + 2**-11, 1 + 3 * 2**-11, 3e-6, 1000 + r.randint(1, 400) / 7, _number(r) / 7]
    cases = [Case(call="to_fp16", args=(x,), names=("number",), sizes=f"number = {x!r}") for x in numbers]
    d, n = r.randint(3, 5), r.randint(3, 6)
    args = (plain(_tokens(r, n, d)), plain(_weights(r, d)))
    terms = _by_term(lesson(d), cached(1, n))
    return [
        *cases,
        Case(call="run_with_cache", args=args, names=("xs", "W"), sizes=f"d = {d}, N = {n}, store = to_fp16",
             terms=terms, own={"store": "to_fp16"}),
        Case(call="same", args=(expected.run(*args), expected.run(*args, store=expected.to_fp16), 1e-9),
             names=("a", "b", "tol"), sizes="the outputs without and with rounding"),
    ]  # fmt: skip


def _memory(r: random.Random) -> list[Case]:
    asked = [(100, 1, 1, 64, 2)]
    asked += [(r.randint(2, 999), r.randint(2, 40), r.randint(2, 9), 8 * r.randint(2, 16), b) for b in (4, 1)]
    names = ("tokens", "layers", "kv_heads", "head_dim", "bytes_each")
    return [
        Case(call="memory", args=a, names=names, sizes=", ".join(f"{n} = {v}" for n, v in zip(names, a, strict=True)))
        for a in asked
    ]


def _edit(r: random.Random) -> list[Case]:
    n = r.randint(5, 9)
    asked = [(n, r.randint(1, n - 2), 3), (n, r.randint(1, n - 2), 1), (n, 0, 2), (n, n - 1, 2)]
    names = ("length", "at", "layers")
    return [
        Case(call="valid_after_edit", args=a, names=names,
             sizes=", ".join(f"{n} = {v}" for n, v in zip(names, a, strict=True)))
        for a in asked
    ]  # fmt: skip


def _window(r: random.Random) -> list[Case]:
    cases = []
    for d, n in zip(r.sample(range(3, 6), 2), r.sample(range(4, 8), 2), strict=True):
        width = r.randint(2, n - 2)
        head = Attention(num_heads=1, num_kv_heads=1, head_dim=d, output=False, window=width)
        terms = _by_term(Decoder(hidden_size=d, vocab_size=0, layers=(Layer(mixer=head),)), cached(1, n))
        cases.append(
            Case(call="run_with_window", args=(_tokens(r, n, d), _weights(r, d), width), names=("xs", "W", "window"),
                 sizes=f"d = {d}, N = {n}, window = {width}", terms=terms)
        )  # fmt: skip
    return cases


def _grouped(r: random.Random) -> list[Case]:
    cases = []
    for groups, share in ((2, r.randint(2, 3)), (1, r.randint(2, 3))):
        d, n, heads = r.randint(3, 5), r.randint(2, 4), groups * share
        queries = [_vector(r, d, "q", n - 1) for _ in range(heads)]
        keys, values = ([[_vector(r, d, kind, j) for j in range(n)] for _ in range(groups)] for kind in "kv")
        cases.append(
            Case(call="attend_grouped", args=(queries, keys, values), names=("qs", "Ks", "Vs"),
                 sizes=f"d = {d}, n = {n}, H = {heads}, G = {groups}",
                 terms={"qk": heads * n * d, "pv": heads * n * d})
        )  # fmt: skip
    return cases


def _batch(r: random.Random) -> list[Case]:
    d, lengths = r.randint(3, 4), (3, r.randint(2, 4))
    args = ([_tokens(r, n, d, first=10 * j) for j, n in enumerate(lengths)], _weights(r, d))
    terms = _sum(*(_by_term(lesson(d), cached(1, n)) for n in lengths))
    sizes = f"d = {d}, requests of {lengths[0]} and {lengths[1]} tokens"
    return [Case(call="run_batch", args=args, names=("requests", "W"), sizes=sizes, terms=terms)]


def _sum(*tables: Mapping[str, int]) -> dict[str, int]:
    return {term: sum(t[term] for t in tables) for term in tables[0]}


_STEPS: list[tuple[str, str, Make]] = [
    ("mul", "1", _mul),
    ("dot", "d", _dot),
    ("project", "3 d^2", _project),
    ("attend", "n d + n d", _attend),
    (
        "step_without_cache",
        "3 n d^2 + 2 n d",
        _loops("step_without_cache", "n", lambda n: uncached(n, 1, loop="lesson")),
    ),
    ("run_without_cache", "3 d^2 T + 2 d T", _loops("run_without_cache", "N", lambda n: uncached(1, n, loop="lesson"))),
    ("run_with_cache", "3 d^2 N + 2 d T", _loops("run_with_cache", "N", lambda n: cached(1, n))),
    ("same", "", _same),
    ("table", "", _table),
    ("to_fp16", "3 d^2 N + 2 d T", _rounding),
    ("memory", "", _memory),
    ("valid_after_edit", "", _edit),
    ("run_with_window", "3 d^2 N + 2 d (pairs in the window)", _window),
    ("attend_grouped", "2 H n d", _grouped),
    ("run_bidirectional", "3 d^2 N + 2 d N^2", _loops("run_bidirectional", "N", lambda n: (Pass(new=n),), "dense")),
    ("run_batch", "the sum over requests", _batch),
]
STEPS = tuple(
    Step(number=i, name=name, formula=formula, make=make, bonus=i > 11)
    for i, (name, formula, make) in enumerate(_STEPS, 1)
)
