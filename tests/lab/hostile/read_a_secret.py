"""no file can be opened here | FileNotFoundError | PermissionError"""


# ruff: noqa
def mul(a, b):
    return open("/etc/passwd").read()
