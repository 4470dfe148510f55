"""no file can be opened here | ImportError | ModuleNotFoundError"""

# ruff: noqa
import socket


def mul(a, b):
    socket.create_connection(("127.0.0.1", 22))
