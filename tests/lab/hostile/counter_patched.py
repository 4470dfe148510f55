"""the counter is set, or counts something else"""


# ruff: noqa
def mul(a, b):
    global multiplications
    multiplications = 10**6
    return a * b
