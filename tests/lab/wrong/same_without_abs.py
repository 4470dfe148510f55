"""same: `same` says True for two lists of vectors with 1e-3"""


# ruff: noqa
def same(a, b, tol):
    if len(a) != len(b) or any(len(u) != len(v) for u, v in zip(a, b)):
        return False
    return not any(p - q > tol for u, v in zip(a, b) for p, q in zip(u, v))
