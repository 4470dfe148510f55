"""ended the program (exit code 7)"""

# ruff: noqa
import os

if __name__ == "kv":
    os._exit(7)
