"""One solution of the lesson, shown step by step once the learner's own has passed."""

# ruff: noqa: B905, PLW0603  # the learner may run an older Python; the counter is a plain global
from __future__ import annotations

import math
import struct
from collections.abc import Callable

Vector = list[float]
Matrix = list[Vector]  # a list of rows, or of vectors, one a token
Weights = tuple[Matrix, Matrix, Matrix]  # W_q, W_k, W_v
Store = Callable[[float], float]

multiplications = 0


def mul(a: float, b: float) -> float:
    global multiplications
    multiplications += 1
    return a * b


def dot(u: Vector, v: Vector) -> float:
    return sum(mul(a, b) for a, b in zip(u, v))


def project(x: Vector, W: Weights) -> tuple[Vector, Vector, Vector]:
    W_q, W_k, W_v = W
    q = [dot(row, x) for row in W_q]
    k = [dot(row, x) for row in W_k]
    v = [dot(row, x) for row in W_v]
    return q, k, v


def attend(q: Vector, K: Matrix, V: Matrix) -> Vector:
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    highest = max(scores)  # softmax is the same for scores - highest, and exp cannot overflow
    exps = [math.exp(score - highest) for score in scores]
    total = sum(exps)
    weights = [e / total for e in exps]
    return [dot(weights, list(column)) for column in zip(*V)]


def step_without_cache(xs: Matrix, W: Weights) -> Vector:
    projected = [project(x, W) for x in xs]
    q = projected[-1][0]
    return attend(q, [k for _, k, _ in projected], [v for _, _, v in projected])


def run_without_cache(xs: Matrix, W: Weights) -> Matrix:
    return [step_without_cache(xs[: t + 1], W) for t in range(len(xs))]


def run_with_cache(xs: Matrix, W: Weights, store: Store = lambda number: number) -> Matrix:
    K: Matrix = []  # the cache belongs to this run
    V: Matrix = []
    outputs = []
    for x in xs:
        q, k, v = project(x, W)
        K.append([store(number) for number in k])
        V.append([store(number) for number in v])
        outputs.append(attend(q, K, V))  # q is used once and forgotten
    return outputs


def same(a: Matrix, b: Matrix, tol: float) -> bool:
    if len(a) != len(b) or any(len(u) != len(v) for u, v in zip(a, b)):
        return False
    return all(abs(p - q) <= tol for u, v in zip(a, b) for p, q in zip(u, v))


def table(lengths: list[int], d: int) -> list[tuple[int, int, int]]:
    rows = []
    for N in lengths:
        T = N * (N + 1) // 2
        rows.append((N, 3 * d * d * T + 2 * d * T, 3 * d * d * N + 2 * d * T))
    return rows


def to_fp16(number: float) -> float:
    return float(struct.unpack("e", struct.pack("e", number))[0])


def memory(tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_each: int) -> tuple[int, int]:
    elements = 2 * tokens * layers * kv_heads * head_dim  # 2: a key and a value
    return elements, elements * bytes_each


def valid_after_edit(length: int, at: int, layers: int) -> list[int]:
    if layers == 1:  # the first k and v are made from the token alone
        return [j for j in range(length) if j != at]
    return list(range(at))  # from layer 2 on, every later token has seen the edit


def run_with_window(xs: Matrix, W: Weights, window: int) -> Matrix:
    K: Matrix = []
    V: Matrix = []
    outputs = []
    for x in xs:
        q, k, v = project(x, W)
        K, V = [*K, k][-window:], [*V, v][-window:]  # what no query will see again is dropped
        outputs.append(attend(q, K, V))
    return outputs


def attend_grouped(qs: Matrix, Ks: list[Matrix], Vs: list[Matrix]) -> Matrix:
    share = len(qs) // len(Ks)
    return [attend(q, Ks[h // share], Vs[h // share]) for h, q in enumerate(qs)]


def run_bidirectional(xs: Matrix, W: Weights) -> Matrix:
    projected = [project(x, W) for x in xs]
    K, V = [k for _, k, _ in projected], [v for _, _, v in projected]
    return [attend(q, K, V) for q, _, _ in projected]


def run_batch(requests: list[Matrix], W: Weights) -> list[Matrix]:
    caches: list[tuple[Matrix, Matrix]] = [([], []) for _ in requests]
    outputs: list[Matrix] = [[] for _ in requests]
    for t in range(max(len(xs) for xs in requests)):
        for row, xs in enumerate(requests):
            if t < len(xs):
                q, k, v = project(xs[t], W)
                caches[row][0].append(k)
                caches[row][1].append(v)
                outputs[row].append(attend(q, *caches[row]))
    return outputs
