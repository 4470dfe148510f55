"""mul: count: the counter was bypassed: it says 0, and 1 multiplication was seen"""


# ruff: noqa
def mul(a, b):
    return a * b
