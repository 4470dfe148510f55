"""table: the two columns are swapped"""

# ruff: noqa
_right = table


def table(lengths, d):
    return [(N, b, a) for N, a, b in _right(lengths, d)]
