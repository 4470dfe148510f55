"""dot: only the first elements are multiplied: return after the loop"""


# ruff: noqa
def dot(u, v):
    total = 0
    for a, b in zip(u, v):
        total += mul(a, b)
        return total
