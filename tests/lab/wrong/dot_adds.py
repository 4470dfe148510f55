"""dot: the elements are added, not multiplied"""


# ruff: noqa
def dot(u, v):
    return sum(u) + sum(v)
