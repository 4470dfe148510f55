"""Hints, a few a step: each says a little more than the one before."""

from __future__ import annotations

HINTS: dict[str, tuple[str, ...]] = {
    "mul": (
        "A function that changes a variable of the file says so first: `global multiplications`.",
        "Three lines: say `global multiplications`, add 1 to it, return a * b.",
    ),
    "dot": (
        "Walk both vectors side by side: `zip(u, v)` gives the pairs.",
        "Each product through mul, then `sum`.",
    ),
    "project": (
        "W is a tuple of three matrices: `W_q, W_k, W_v = W`.",
        "Element i of q is dot(W_q[i], x). So q is one dot a row of W_q; k and v alike.",
    ),
    "attend": (
        "First n scores: dot(q, k) / math.sqrt(d) for each key k, where d is len(q).",
        "Softmax: math.exp of each score, each divided by the sum of all. Plain / here, not mul.",
        "Element i of the output: dot(weights, [v[i] for v in V]). In all n d products; no more.",
    ),
    "step_without_cache": (
        "Project every token of xs. The newest token is xs[-1]: its q is the one that attends.",
        "K is the list of all k, V the list of all v, the newest token's own included.",
    ),
    "run_without_cache": (
        "The prefixes are xs[:1], xs[:2], ... xs[:N].",
        "One call of step_without_cache for each prefix. Yes, it is wasteful; that is the point.",
    ),
    "run_with_cache": (
        "k and v of a token are made from that token and W alone. Have they changed since?",
        "Start with K = [] and V = [] inside the function. For each x: project, append k and v, attend.",
        "Append [store(a) for a in k] and the same of v, then attend(q, K, V). q itself is not kept.",
    ),
    "same": (
        "Compare the lengths first, of the lists and of the vectors in them.",
        "A difference can be negative: abs. And write it as `abs(p - q) <= tol`: a NaN then fails by itself.",
    ),
    "table": (
        "T = N * (N + 1) // 2: whole numbers, so // and not /.",
        "Without the cache 3 d^2 T + 2 d T, with it 3 d^2 N + 2 d T. A row is (N, without, with).",
    ),
    "to_fp16": (
        "The standard library knows the format: struct packs a number to bytes and back.",
        'struct.unpack("e", struct.pack("e", number)) gives a tuple of one. Then store=to_fp16 does the rest.',
    ),
    "memory": (
        "A token leaves one key and one value in each layer and each K and V head, head_dim numbers wide.",
        "2 * tokens * layers * kv_heads * head_dim elements, and bytes_each for each of them.",
    ),
    "valid_after_edit": (
        "In the first layer k and v are made from the token alone. From what are they made in the second?",
        "With one layer only position `at` is lost. With more, everything from `at` on.",
    ),
    "run_with_window": (
        "What a query sees are the last `window` entries of K and V: K[-window:].",
        "What no later query will see again can be dropped: the cache stops growing.",
    ),
    "attend_grouped": (
        "len(qs) // len(Ks) query heads share one K and V head.",
        "Query head h reads Ks[h // share] and Vs[h // share].",
    ),
    "run_bidirectional": (
        "Project every token first, then let every query attend to all of K and V.",
    ),
    "run_batch": (
        "Each request has a K and V of its own. Does run_with_cache not do that already?",
    ),
}  # fmt: skip
