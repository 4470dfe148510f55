"""Well-known mistakes: a sentence for each, and the values it gives on an input."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from kvtally.frontends.lab import expected
from kvtally.frontends.lab.expected import Flaws, dot

Answer = tuple[str, Callable[[], Any]]  # a sentence, and the value that mistake gives
run: Callable[..., Any] = expected.run
attend: Callable[..., Any] = expected.attend
project: Callable[..., Any] = expected.project

ATTENTION = {
    "the scores are not divided by sqrt(d)": Flaws(scale="none"),
    "the scores are divided by d, not by its square root": Flaws(scale="d"),
    "the scores are multiplied by sqrt(d), not divided": Flaws(scale="times"),
    "the scores are divided by the square root of the number of keys: d is the length of q": Flaws(scale="n"),
    "the softmax is missing: the scores themselves are the weights": Flaws(softmax="no"),
    "the weights are not divided by their sum: exp alone is not a softmax": Flaws(softmax="exp"),
    "the weights are scores divided by their sum: exp is missing": Flaws(softmax="sums"),
    "every key gets the same weight: the scores are not used": Flaws(softmax="uniform"),
    "only the highest score counts: that is a maximum, not a softmax": Flaws(softmax="hard"),
    "the softmax takes powers of 2, not of e": Flaws(softmax="base2"),
    "the sign of the scores is turned: the best key gets the least weight": Flaws(softmax="minus"),
    "the keys are mixed where the values should be: K is used for V": Flaws(mix="k"),
    "the query is compared with the values: V is used for K": Flaws(scores="v"),
}
PROJECTION = {
    "the weights are transposed: element i is the dot product of row i with x, not of column i": Flaws(transposed=True),
    "k and v are swapped: W is (W_q, W_k, W_v)": Flaws(order=(0, 2, 1)),
    "q and k are swapped: W is (W_q, W_k, W_v)": Flaws(order=(1, 0, 2)),
    "q and v are swapped: W is (W_q, W_k, W_v)": Flaws(order=(2, 1, 0)),
    "W_q makes k as well: each of q, k and v has a matrix of its own": Flaws(order=(0, 0, 2)),
    "W_k makes v as well: each of q, k and v has a matrix of its own": Flaws(order=(0, 1, 1)),
    "W_q makes all three: each of q, k and v has a matrix of its own": Flaws(order=(0, 0, 0)),
}
LOOP = {
    "the query does not see its own token: keep k and v before you attend": Flaws(sees="others"),
    "only the newest k and v are seen: the cache must grow, not be replaced": Flaws(sees="newest"),
    "every query sees all tokens: a token may not see those after it": Flaws(sees="all"),
    "each query sees one token too many, the next one": Flaws(sees="ahead"),
    "only the first token is ever seen": Flaws(sees="first"),
    "the first token is never seen": Flaws(sees="late"),
    "the first token's query attends at every step: use the newest token's": Flaws(query="first"),
}
ROUNDED = {
    "only the keys are rounded: the values are stored too": Flaws(rounds="k"),
    "only the values are rounded: the keys are stored too": Flaws(rounds="v"),
    "the newest token is read unrounded: keep its k and v first, then read what was kept": Flaws(rounds="past"),
    "the query is rounded as well: it is never stored": Flaws(rounds="q"),
    "the outputs are rounded: only what is kept, k and v, passes through store": Flaws(rounds="out"),
}


#: What a loop can get wrong; without those that give the same values as another: v made by W_k is K used for V,
#: and the key with the highest score can be the first or the newest.
IN_LOOPS = {told: flaws for told, flaws in ATTENTION.items() if flaws.softmax != "hard"}
LOOPS = {**LOOP, **IN_LOOPS, **{told: flaws for told, flaws in PROJECTION.items() if flaws.order != (0, 1, 1)}}


def mistakes(call: str, args: Any, store: Callable[[float], float] | None) -> Iterator[Answer]:
    """The mistakes one can make in a call, each with the value it would give for these plain inputs."""
    if call == "project":
        yield from _flawed(PROJECTION, lambda flaws: project(*args, flaws=flaws))
    elif call == "attend":
        yield from _flawed(ATTENTION, lambda flaws: attend(*args, flaws=flaws))
    elif call == "step_without_cache":
        yield from _flawed(LOOPS, lambda flaws: run(*args, flaws=flaws)[-1])
    elif call == "run_with_cache" and store:
        yield "nothing is rounded: pass every number of k and v through store", lambda: run(*args)
        yield from _flawed(ROUNDED, lambda flaws: run(*args, flaws=flaws, store=store))
    elif call == "run_with_window":
        yield from _window(*args)
    elif call == "run_bidirectional":
        yield "no query sees the later tokens: here every token sees all", lambda: run(*args)
        yield from _flawed(IN_LOOPS, lambda flaws: run(*args, flaws=replace(flaws, sees="all")))
    elif call in ("run_without_cache", "run_with_cache"):
        yield "only the last output is returned: the answer is a list of all N", lambda: run(*args)[-1]
        yield "the outputs come in reverse order", lambda: run(*args)[::-1]
        yield from _flawed(LOOPS, lambda flaws: run(*args, flaws=flaws))
    elif call in PLAIN:
        yield from PLAIN[call](*args)


def _flawed(table: dict[str, Flaws], value: Callable[[Flaws], Any]) -> Iterator[Answer]:
    for sentence, flaws in table.items():
        yield sentence, partial(value, flaws)


def _mul(a: float, b: float) -> Iterator[Answer]:
    yield "that is the sum: mul returns the product a * b", lambda: a + b
    yield "that is a quotient: mul returns the product a * b", lambda: a / b
    yield "that is a * a: b is not used", lambda: a * a
    yield "nothing is returned but the counter: mul returns a * b, and adds 1 on the side", lambda: 1


def _dot(u: list[float], v: list[float]) -> Iterator[Answer]:
    yield "the elements are added, not multiplied", lambda: sum(u) + sum(v)
    yield "the last elements are left out", lambda: dot(u[:-1], v[:-1])
    yield "the first elements are left out", lambda: dot(u[1:], v[1:])
    yield "only the first elements are multiplied: return after the loop, not in it", lambda: u[0] * v[0]
    yield "only the last product is kept: add them up", lambda: u[-1] * v[-1]
    yield "the products are not added up: dot returns one number", lambda: [a * b for a, b in zip(u, v, strict=True)]


def _window(xs: Any, weights: Any, width: int) -> Iterator[Answer]:
    yield "there is no window: a token sees only the last `window` tokens", lambda: run(xs, weights)
    yield "the window is one too wide: it counts the token itself", lambda: expected.window(xs, weights, width + 1)
    yield "the window is one too narrow: it counts the token itself", lambda: expected.window(xs, weights, width - 1)
    yield from _flawed(IN_LOOPS, lambda flaws: expected.window(xs, weights, width, flaws))


def _table(lengths: list[int], d: int) -> Iterator[Answer]:
    rows = [(n, expected.without(n, d), expected.with_cache(n, d), n * (n + 1)) for n in lengths]  # n(n+1) = 2T
    yield (
        "the two columns are swapped: first without the cache, then with it",
        lambda: [[n, b, a] for n, a, b, _ in rows],
    )
    yield (
        "only the projections are counted: add 2 d T for scores and mixing",
        lambda: [[n, a - d * t, b - d * t] for n, a, b, t in rows],
    )
    yield (
        "T is N(N-1)/2 here: the newest token is compared with itself too, T = N(N+1)/2",
        lambda: [[n, a - (3 * d * d + 2 * d) * n, b - 2 * d * n] for n, a, b, _ in rows],
    )
    yield (
        "one projection a token is counted: there are three, q, k and v",
        lambda: [[n, a - d * d * t, b - 2 * d * d * n] for n, a, b, t in rows],
    )
    yield "both columns are without the cache", lambda: [[n, a, a] for n, a, _, _ in rows]


def _memory(tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_each: int) -> Iterator[Answer]:
    elements, size = expected.memory(tokens, layers, kv_heads, head_dim, bytes_each)
    yield "only the keys are counted, or only the values: both are kept, so twice as many", lambda: [
        elements // 2, size // 2,
    ]  # fmt: skip
    yield "the layers are left out: each layer has a cache of its own", lambda: [elements // layers, size // layers]
    yield "the heads are left out: each K and V head is kept", lambda: [elements // kv_heads, size // kv_heads]
    yield "the answer is (elements, bytes), in this order", lambda: [size, elements]
    yield "those are bits: a byte is 8 of them", lambda: [elements, 8 * size]
    yield "the bytes are left out: bytes are elements times bytes_each", lambda: [elements, elements]
    yield "queries are counted too: they are never stored", lambda: [elements * 3 // 2, size * 3 // 2]


def _to_fp16(x: float) -> Iterator[Answer]:
    def cut(number: float, bits: int) -> float:
        """A float32 with its last `bits` bits cleared."""
        whole = struct.unpack("I", struct.pack("f", number))[0]
        return float(struct.unpack("f", struct.pack("I", whole >> bits << bits))[0])

    yield "nothing is rounded", lambda: x
    yield "that is 32 bits: half precision has 16", lambda: cut(x, 0)
    yield "that is bfloat16: IEEE half precision keeps 11 significant bits", lambda: cut(x, 16)
    yield "the number is cut, not rounded to the nearest", lambda: cut(x, 13)
    for digits in (2, 3, 4):
        yield f"that is {digits} decimal places: half precision keeps 11 significant bits", partial(round, x, digits)


def _valid(length: int, at: int, layers: int) -> Iterator[Answer]:
    everything = list(range(length))
    yield "the changed token itself is not valid: its own k and v are made from it", lambda: everything[: at + 1]
    if layers == 1:
        yield "with one layer k and v are made from the token alone: those after it hold too", lambda: everything[:at]
    yield (
        "from layer 2 on, every later token has seen the edit: only those before it hold",
        lambda: [j for j in everything if j != at],
    )
    yield "those are the positions to compute again: name the ones that hold", lambda: everything[at:]
    yield "nothing is said to be invalid: at least the changed token is", lambda: everything


def _grouped(qs: Any, keys: Any, values: Any) -> Iterator[Answer]:
    groups = len(keys)

    def read(which: Callable[[int], int]) -> list[Any]:
        return [expected.attend(q, keys[which(h)], values[which(h)]) for h, q in enumerate(qs)]

    yield (
        "heads take turns: with H / G heads a group, neighbours share (h // share, not h % G)",
        lambda: read(lambda h: h % groups),
    )
    yield "every query head reads the first K and V head", lambda: read(lambda h: h * 0)


def _batch(requests: Any, weights: Any) -> Iterator[Answer]:
    def shared() -> list[Any]:
        """One cache for both: rows are kept in the order in which they come, step by step."""
        order = [(t, r) for t in range(max(map(len, requests))) for r in range(len(requests)) if t < len(requests[r])]
        outs = run([requests[r][t] for t, r in order], weights)
        return [[outs[i] for i, (_, r) in enumerate(order) if r == row] for row in range(len(requests))]

    def after_another() -> list[Any]:
        outs = run([x for xs in requests for x in xs], weights)
        return [outs[: len(requests[0])], outs[len(requests[0]) :]]

    mixed = "one request reads the k and v of the other: give each a cache of its own"
    yield mixed, shared
    yield mixed, after_another
    yield "the answers are swapped: row 1 belongs to request 1", lambda: expected.batch(requests, weights)[::-1]


PLAIN: dict[str, Callable[..., Iterator[Answer]]] = {
    "mul": _mul, "dot": _dot, "table": _table, "to_fp16": _to_fp16, "memory": _memory,
    "valid_after_edit": _valid, "attend_grouped": _grouped, "run_batch": _batch,
}  # fmt: skip
