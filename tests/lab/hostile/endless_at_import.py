"""did not answer within | more than 8 s of CPU"""

# ruff: noqa
if __name__ == "kv":
    while True:
        pass
