"""valid_after_edit: with one layer k and v are made from the token alone"""


# ruff: noqa
def valid_after_edit(length, at, layers):
    return list(range(at))
