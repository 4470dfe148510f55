"""MemoryError | crashed Python | did not answer"""


# ruff: noqa
def mul(a, b):
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
