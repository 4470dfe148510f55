"""mul: write `global multiplications` as the function's first line"""


# ruff: noqa
def mul(a, b):
    multiplications += 1  # noqa: F821, F841
    return a * b
