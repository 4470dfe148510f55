"""the answer has more than | MemoryError"""


# ruff: noqa
def mul(a, b):
    return iter(int, 1)
