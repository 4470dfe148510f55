"""table: only the projections are counted: add 2 d T"""


# ruff: noqa
def table(lengths, d):
    return [(N, 3 * d * d * (N * (N + 1) // 2), 3 * d * d * N) for N in lengths]
