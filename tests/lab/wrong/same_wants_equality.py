"""same: `same` says False for two lists of vectors with 1e-12 added"""


# ruff: noqa
def same(a, b, tol):
    return a == b
