"""did not answer within | more than 8 s of CPU"""


# ruff: noqa
def mul(a, b):
    while True:
        pass
