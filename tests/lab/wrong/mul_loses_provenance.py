"""mul: numbers were turned into plain floats"""


# ruff: noqa
def mul(a, b):
    global multiplications
    multiplications += 1
    return float(a) * float(b)
