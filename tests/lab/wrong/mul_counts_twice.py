"""mul: every multiplication is counted twice"""


# ruff: noqa
def mul(a, b):
    global multiplications
    multiplications += 2
    return a * b
