"""same: `same` says True for two lists of vectors with the last vector missing"""


# ruff: noqa
def same(a, b, tol):
    return all(abs(p - q) <= tol for u, v in zip(a, b) for p, q in zip(u, v))
