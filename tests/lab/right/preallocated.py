"""A cache of fixed length, filled from the front."""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    N = len(xs)
    K, V, outputs = [None] * N, [None] * N, [None] * N
    for t in range(N):
        q, k, v = project(xs[t], W)
        K[t], V[t] = [store(n) for n in k], [store(n) for n in v]
        outputs[t] = attend(q, K[: t + 1], V[: t + 1])
    return outputs
