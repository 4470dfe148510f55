"""crashed Python (SIGABRT) | crashed Python"""

# ruff: noqa
import os


def mul(a, b):
    os.abort()
