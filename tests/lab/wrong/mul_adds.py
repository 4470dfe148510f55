"""mul: that is the sum: mul returns the product a * b"""


# ruff: noqa
def mul(a, b):
    global multiplications
    multiplications += 1
    return a + b
