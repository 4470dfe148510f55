"""valid_after_edit: from layer 2 on, every later token has seen the edit"""


# ruff: noqa
def valid_after_edit(length, at, layers):
    return [j for j in range(length) if j != at]
