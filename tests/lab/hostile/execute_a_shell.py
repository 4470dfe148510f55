"""Error"""

# ruff: noqa
import os


def mul(a, b):
    os.execv("/bin/sh", ["sh", "-c", "echo hello; sleep 3600"])
