"""project: k and v are swapped: W is (W_q, W_k, W_v)"""


# ruff: noqa
def project(x, W):
    q, v, k = ([dot(row, x) for row in M] for M in W)
    return q, k, v
