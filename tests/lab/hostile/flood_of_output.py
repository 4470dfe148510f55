"""printed more than 1 MB"""


# ruff: noqa
def mul(a, b):
    for _ in range(100):
        print("x" * 1_000_000)
    return a * b
