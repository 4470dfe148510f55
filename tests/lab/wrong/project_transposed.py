"""project: value: the weights are transposed"""


# ruff: noqa
def project(x, W):
    return tuple([dot([row[i] for row in M], x) for i in range(len(x))] for M in W)
