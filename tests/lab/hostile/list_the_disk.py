"""no file can be opened here | FileNotFoundError | PermissionError | the answer is"""

# ruff: noqa
import os


def mul(a, b):
    found = os.listdir("/")
    return found
