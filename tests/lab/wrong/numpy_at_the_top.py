"""mul: imports numpy: the lesson is plain Python"""

# ruff: noqa
import numpy as np  # noqa: E402


def dot(u, v):
    return float(np.dot(u, v))
