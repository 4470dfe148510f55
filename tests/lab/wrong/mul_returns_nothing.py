"""mul: nothing is returned: is the `return` missing?"""


# ruff: noqa
def mul(a, b):
    global multiplications
    multiplications += 1
    a * b  # noqa: B018
