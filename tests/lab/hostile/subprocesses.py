"""Error"""

# ruff: noqa
import os


def mul(a, b):
    os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 3600"], {})
