"""did not answer within | more than 8 s of CPU"""

# ruff: noqa
import _signal as signal


def mul(a, b):
    for number in range(1, 64):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass
