"""OSError | PermissionError | FileNotFoundError"""

# ruff: noqa
import os


def mul(a, b):
    os.rename("/tmp/kvtally-victim", "/tmp/KVTALLY_WAS_HERE")
