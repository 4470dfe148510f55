"""same: `same` says True for two lists of vectors with one number a NaN"""


# ruff: noqa
def same(a, b, tol):
    if len(a) != len(b) or any(len(u) != len(v) for u, v in zip(a, b)):
        return False
    return not any(abs(p - q) > tol for u, v in zip(a, b) for p, q in zip(u, v))
