"""table: T is N(N-1)/2 here"""


# ruff: noqa
def table(lengths, d):
    T = lambda N: N * (N - 1) // 2
    return [(N, (3 * d * d + 2 * d) * T(N), 3 * d * d * N + 2 * d * T(N)) for N in lengths]
