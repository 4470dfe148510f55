"""longer than 8 MB | did not answer"""

# ruff: noqa
import os


def mul(a, b):
    while True:
        for descriptor in range(3, 16):
            try:
                os.write(descriptor, b"[" * 65536)
            except OSError:
                pass
