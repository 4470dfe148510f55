"""Error | did not answer"""

# ruff: noqa
import os
import sys
import time


def mul(a, b):
    ctypes = sys.modules["ctypes"]
    libc = ctypes.CDLL(None)
    libc.prctl(1, 0, 0, 0, 0)
    os.setsid()
    time.sleep(3600)
