"""Error"""

# ruff: noqa
import os
import time


def mul(a, b):
    if os.fork() == 0:
        os.setsid()
        time.sleep(3600)
    return a * b
