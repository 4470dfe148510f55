"""table: a float, expected the whole number"""


# ruff: noqa
def table(lengths, d):
    return [(N, (3 * d * d + 2 * d) * N * (N + 1) / 2, 3 * d * d * N + d * N * (N + 1)) for N in lengths]
