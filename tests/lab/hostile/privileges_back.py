"""Error"""

# ruff: noqa
import os


def mul(a, b):
    os.setuid(0)
    return a * b
