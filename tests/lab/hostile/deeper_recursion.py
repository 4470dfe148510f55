"""did not answer | RecursionError | MemoryError | crashed Python"""

# ruff: noqa
import sys


def mul(a, b):
    sys.setrecursionlimit(10**8)
    return repr_deeply([])


def repr_deeply(x):
    for _ in range(10**6):
        x = [x]
    return repr(x)
