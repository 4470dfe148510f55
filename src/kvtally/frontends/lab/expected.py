"""The right values of every step, and the values that well-known mistakes give."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Vector = list[float]
Matrix = list[Vector]
Weights = Sequence[Matrix]  # W_q, W_k, W_v


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaws:
    """Which mistakes to make; none as it stands. Each field is one mistake of the attention or of a loop."""

    scale: str = "sqrt"  # none, d, times, double, n
    softmax: str = "yes"  # no, exp, sums, uniform, hard, base2, minus
    mix: str = "v"  # k, q
    scores: str = "k"  # v
    transposed: bool = False
    order: tuple[int, int, int] = (0, 1, 2)  # which of W_q, W_k, W_v makes q, k, v
    sees: str = "past"  # others, newest, all, first, ahead, late
    query: str = "newest"  # first, sum
    kept: str = "own"  # shared (a cache that was never emptied)
    rounds: str = "both"  # k, v, q, out, past


def right(step: str) -> Callable[..., Any]:
    """The function that works out the right values of a step from plain inputs."""
    return FUNCTIONS[step]


def dot(u: Vector, v: Vector) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True))


def project(x: Vector, weights: Weights, flaws: Flaws = Flaws()) -> list[Vector]:
    """q, k and v of one token: row i of a matrix makes element i."""
    chosen = [weights[i] for i in flaws.order]
    if flaws.transposed:
        chosen = [[list(column) for column in zip(*matrix, strict=True)] for matrix in chosen]
    return [[dot(row, x) for row in matrix] for matrix in chosen]


def attend(q: Vector, keys: Matrix, values: Matrix, flaws: Flaws = Flaws()) -> Vector:
    """softmax(q . k / sqrt(d)) over the keys, mixing the values."""
    d, n = len(q), len(keys)
    by = {"sqrt": math.sqrt(d), "none": 1.0, "d": d, "times": 1 / math.sqrt(d), "double": float(d), "n": math.sqrt(n)}
    weights = _weights([dot(q, k) / by[flaws.scale] for k in (values if flaws.scores == "v" else keys)], flaws.softmax)
    mixed = {"v": values, "k": keys, "q": [q] * n}[flaws.mix]
    return [sum(w * row[i] for w, row in zip(weights, mixed, strict=True)) for i in range(len(mixed[0]))]


def _weights(scores: Vector, softmax: str) -> Vector:
    if softmax == "no":
        return scores
    if softmax == "sums":
        return [s / sum(scores) for s in scores]
    if softmax == "uniform":
        return [1 / len(scores)] * len(scores)
    if softmax == "hard":
        return [float(s == max(scores)) for s in scores]
    if softmax == "minus":
        scores = [-s for s in scores]
    e = [math.pow(2.0, s) if softmax == "base2" else math.exp(s) for s in scores]
    return e if softmax == "exp" else [x / sum(e) for x in e]


def step(xs: Matrix, weights: Weights, flaws: Flaws = Flaws()) -> Vector:
    """The output of the newest token of `xs`."""
    return run(xs, weights, flaws)[-1]


def run(xs: Matrix, weights: Weights, flaws: Flaws = Flaws(), store: Callable[[float], float] | None = None) -> Matrix:
    """The output of every token of `xs`, each attending to itself and what came before."""
    made = [project(x, weights, flaws) for x in xs]
    stored = [_stored(m, store, flaws) for m in made]
    outs = []
    for t in range(len(xs)):
        own = [*stored[:t], made[t]] if flaws.rounds == "past" else stored
        q = made[{"newest": t, "first": 0}[flaws.query]][0]
        if flaws.rounds == "q" and store:
            q = [store(a) for a in q]
        seen = _seen(t, len(xs), flaws.sees)
        out = attend(q, [own[j][1] for j in seen], [own[j][2] for j in seen], flaws)
        outs.append([store(a) for a in out] if flaws.rounds == "out" and store else out)
    return outs


def _stored(made: list[Vector], store: Callable[[float], float] | None, flaws: Flaws) -> list[Vector]:
    if store is None:
        return made
    chosen = {"both": (1, 2), "past": (1, 2), "k": (1,), "v": (2,), "q": (1, 2), "out": ()}[flaws.rounds]
    return [[store(a) for a in vector] if i in chosen else vector for i, vector in enumerate(made)]


def _seen(t: int, length: int, sees: str) -> list[int]:
    """Positions of the tokens that the query at `t` is compared with."""
    if sees.startswith("window"):
        return list(range(max(0, t + 1 - int(sees[6:])), t + 1))
    if sees == "others":
        return list(range(t)) or [0]
    if sees == "late":
        return list(range(1, t + 1)) or [0]
    if sees == "ahead":
        return list(range(min(t + 2, length)))
    return {"past": list(range(t + 1)), "newest": [t], "all": list(range(length)), "first": [0]}[sees]


def window(xs: Matrix, weights: Weights, width: int, flaws: Flaws = Flaws()) -> Matrix:
    """The outputs where each token sees the last `width` tokens, itself included."""
    return run(xs, weights, replace(flaws, sees=f"window{width}"))


def grouped(qs: Matrix, keys: Sequence[Matrix], values: Sequence[Matrix]) -> Matrix:
    """One output a query head; consecutive query heads share a K and V head."""
    share = len(qs) // len(keys)
    return [attend(q, keys[h // share], values[h // share]) for h, q in enumerate(qs)]


def batch(requests: Sequence[Matrix], weights: Weights) -> list[Matrix]:
    """The outputs of each request, by itself."""
    return [run(xs, weights) for xs in requests]


def to_fp16(x: float) -> float:
    """The nearest number that 16 bits hold (IEEE binary16, ties to even)."""
    return float(struct.unpack("e", struct.pack("e", x))[0])


def same(a: Any, b: Any, tol: float) -> bool:
    """Whether two nested lists have one shape and no two numbers further apart than `tol`."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(p, q, tol) for p, q in zip(a, b, strict=True))
    return not isinstance(a, list | tuple) and not isinstance(b, list | tuple) and abs(a - b) <= tol


def without(n: int, d: int) -> int:
    """Multiplications of the loop without a cache: 3d^2 T + 2d T, T = n(n+1)/2."""
    pairs = n * (n + 1) // 2
    return 3 * d * d * pairs + 2 * d * pairs


def with_cache(n: int, d: int) -> int:
    """Multiplications of the loop with a cache: 3d^2 n + 2d T, T = n(n+1)/2."""
    return 3 * d * d * n + d * n * (n + 1)


def table(lengths: list[int], d: int) -> list[list[int]]:
    return [[n, without(n, d), with_cache(n, d)] for n in lengths]


def memory(tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_each: int) -> list[int]:
    elements = 2 * tokens * layers * kv_heads * head_dim
    return [elements, elements * bytes_each]


def valid_after_edit(length: int, at: int, layers: int) -> list[int]:
    """Positions whose cached K and V stay right in every layer."""
    return [j for j in range(length) if j < at or (layers == 1 and j != at)]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mul": lambda a, b: a * b,
    "dot": dot,
    "project": project,
    "attend": attend,
    "step_without_cache": step,
    "run_without_cache": run,
    "run_with_cache": run,
    "same": same,
    "table": table,
    "to_fp16": to_fp16,
    "memory": memory,
    "valid_after_edit": valid_after_edit,
    "run_with_window": window,
    "attend_grouped": grouped,
    "run_bidirectional": lambda xs, weights: run(xs, weights, Flaws(sees="all")),
    "run_batch": batch,
}
