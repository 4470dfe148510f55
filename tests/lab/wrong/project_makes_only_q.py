"""project: value and count: the answer is a list of"""


# ruff: noqa
def project(x, W):
    return [dot(row, x) for row in W[0]]
