"""Error | the answer is | nothing is returned | did not answer"""

# ruff: noqa
import os
import time


def mul(a, b):
    os.setsid()
    time.sleep(3600)
