"""Attention, counted: grow this file step by step, and see what a KV cache saves.

Plain lists of numbers, standard library only. Every multiplication of a projection, of a score
and of the mixing goes through `mul`. Dividing by sqrt(d) and the softmax are not counted.
Run `kvtally lab check` after each step; LESSON.md says why each step is there.
"""

from __future__ import annotations

from collections.abc import Callable

Vector = list[float]
Matrix = list[Vector]  # a list of rows, or of vectors, one a token
Weights = tuple[Matrix, Matrix, Matrix]  # W_q, W_k, W_v
Store = Callable[[float], float]

multiplications = 0  # your counter; the grader sets it to 0 before each call


def mul(a: float, b: float) -> float:
    """Step 1. a * b; adds 1 to `multiplications`."""
    raise NotImplementedError


def dot(u: Vector, v: Vector) -> float:
    """Step 2. The sum of u[i] * v[i]: d multiplications. dot([1, 2], [3, 4]) is 11."""
    raise NotImplementedError


def project(x: Vector, W: Weights) -> tuple[Vector, Vector, Vector]:
    """Step 3. (q, k, v) of one token x. W is (W_q, W_k, W_v), each a list of d rows.

    q[i] is the dot product of row i of W_q with x; k and v alike: 3 d^2 multiplications.
    """
    raise NotImplementedError


def attend(q: Vector, K: Matrix, V: Matrix) -> Vector:
    """Step 4. What query q takes from n keys K and n values V, a list of d numbers.

    score j is dot(q, K[j]) / sqrt(d); the weights are softmax(scores); element i of the output is
    the sum over j of weight j times V[j][i]: n d + n d multiplications.
    """
    raise NotImplementedError


def step_without_cache(xs: Matrix, W: Weights) -> Vector:
    """Step 5. The output of the newest of n tokens, everything made anew.

    Project all n tokens, then let the last query attend: 3 n d^2 + 2 n d multiplications.
    """
    raise NotImplementedError


def run_without_cache(xs: Matrix, W: Weights) -> Matrix:
    """Step 6. The list of N outputs, one a token: step_without_cache on every prefix of xs.

    With T = N (N + 1) / 2: 3 d^2 T + 2 d T multiplications.
    """
    raise NotImplementedError


def run_with_cache(xs: Matrix, W: Weights, store: Store = lambda number: number) -> Matrix:
    """Step 7. The same N outputs; each token is projected once, its k and v are kept.

    Every number of k and v passes through `store` before it is kept, the newest token's too, and
    attention reads what was kept: 3 d^2 N + 2 d T multiplications.
    """
    raise NotImplementedError


def same(a: Matrix, b: Matrix, tol: float) -> bool:
    """Step 8. True where two lists of vectors have one shape and no numbers differ by more than tol.

    A NaN is never the same as anything.
    """
    raise NotImplementedError


def table(lengths: list[int], d: int) -> list[tuple[int, int, int]]:
    """Step 9. One row for each length N: (N, multiplications without cache, with cache)."""
    raise NotImplementedError


def to_fp16(number: float) -> float:
    """Step 10. The number, rounded to the nearest that 16 bits can hold (IEEE half precision)."""
    raise NotImplementedError


def memory(tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_each: int) -> tuple[int, int]:
    """Step 11. (elements, bytes) of a cache that holds K and V of every token."""
    raise NotImplementedError


# ---- bonus: any of these, in any order ----


def valid_after_edit(length: int, at: int, layers: int) -> list[int]:
    """Step 12. Token `at` of `length` was changed: the positions whose cached k and v hold in every layer."""
    raise NotImplementedError


def run_with_window(xs: Matrix, W: Weights, window: int) -> Matrix:
    """Step 13. As run_with_cache, but a token sees only the last `window` tokens, itself included."""
    raise NotImplementedError


def attend_grouped(qs: Matrix, Ks: list[Matrix], Vs: list[Matrix]) -> Matrix:
    """Step 14. One output for each query head in qs, a list.

    Ks and Vs hold fewer heads: with H query heads and G K and V heads, H / G neighbours share one.
    """
    raise NotImplementedError


def run_bidirectional(xs: Matrix, W: Weights) -> Matrix:
    """Step 15. N outputs, every token seeing all N tokens, later ones too; project each token once."""
    raise NotImplementedError


def run_batch(requests: list[Matrix], W: Weights) -> list[Matrix]:
    """Step 16. For each request (a list of tokens), the list of its outputs; one cache a request."""
    raise NotImplementedError
