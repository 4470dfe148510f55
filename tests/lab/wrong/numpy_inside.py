"""project: imports numpy: the lesson is plain Python"""


# ruff: noqa
def project(x, W):
    import numpy as np

    return [list(np.array(matrix) @ np.array(x)) for matrix in W]
