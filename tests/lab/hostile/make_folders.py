"""OSError | PermissionError | FileNotFoundError"""

# ruff: noqa
import os


def mul(a, b):
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/"):
        try:
            os.mkdir(place + "/KVTALLY_WAS_HERE")
        except OSError:
            pass
    os.mkdir("KVTALLY_WAS_HERE")
