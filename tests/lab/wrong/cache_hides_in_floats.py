"""run_with_cache: numbers were turned into plain floats"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    global multiplications
    N, d = len(xs), len(xs[0])
    outputs = run_without_cache([[float(n) for n in x] for x in xs], [[[float(n) for n in r] for r in M] for M in W])
    multiplications = 3 * d * d * N + d * N * (N + 1)
    return outputs
