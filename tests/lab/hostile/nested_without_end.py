"""Error"""


# ruff: noqa
def mul(a, b):
    x = []
    x.append(x)
    return x
