"""RecursionError"""


# ruff: noqa
def mul(a, b):
    return mul(a, b)
