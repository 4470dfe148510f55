"""mul: the answer does not depend on the input: it is hard-coded"""


# ruff: noqa
def mul(a, b):
    global multiplications
    multiplications += 1
    return 0.42
