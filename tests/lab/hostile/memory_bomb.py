"""MemoryError"""


# ruff: noqa
def mul(a, b):
    return [0] * 10**10
