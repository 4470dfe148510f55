"""valid_after_edit: the changed token itself is not valid"""


# ruff: noqa
def valid_after_edit(length, at, layers):
    return list(range(at + 1))
