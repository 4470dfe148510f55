"""Error"""

# ruff: noqa
import resource


def mul(a, b):
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    return a * b
