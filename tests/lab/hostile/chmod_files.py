"""OSError | PermissionError | FileNotFoundError"""

# ruff: noqa
import os


def mul(a, b):
    os.chmod("/tmp/kvtally-victim", 0o777)
