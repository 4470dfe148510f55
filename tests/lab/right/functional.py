"""reduce, operator, fsum and math.pow."""

# ruff: noqa
import functools
import operator


def dot(u, v):
    return functools.reduce(operator.add, map(mul, u, v))


def attend(q, K, V):
    exps = [math.exp(dot(q, k) / math.sqrt(len(q))) for k in K]
    total = math.fsum(exps)
    return [math.fsum(mul(e / total, v[i]) for e, v in zip(exps, V)) for i in range(len(q))]
