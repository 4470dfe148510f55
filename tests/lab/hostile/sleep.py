"""did not answer within"""

# ruff: noqa
import time


def mul(a, b):
    time.sleep(3600)
