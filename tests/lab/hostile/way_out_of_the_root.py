"""Error"""

# ruff: noqa
import os


def mul(a, b):
    os.chroot("/")
    return a * b
