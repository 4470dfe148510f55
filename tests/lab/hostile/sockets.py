"""OSError | ImportError"""

# ruff: noqa
import sys


def mul(a, b):
    libc = sys.modules["ctypes"].CDLL(None)
    if libc.socket(2, 1, 0) >= 0 or libc.socket(1, 1, 0) >= 0:
        return "a socket"
    raise OSError("no socket")
