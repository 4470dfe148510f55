"""The values are mixed with exp alone; the sum divides the output."""


# ruff: noqa
def attend(q, K, V):
    exps = [math.exp(dot(q, k) / math.sqrt(len(q))) for k in K]
    return [dot(exps, column) / sum(exps) for column in zip(*V)]
