"""Error"""

# ruff: noqa
import _thread
import time


def mul(a, b):
    for _ in range(1000):
        _thread.start_new_thread(time.sleep, (3600,))
    return a * b
