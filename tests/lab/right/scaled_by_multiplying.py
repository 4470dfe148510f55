"""1/sqrt(d) is multiplied, and so is one over the sum."""


# ruff: noqa
def attend(q, K, V):
    scale = 1 / math.sqrt(len(q))
    exps = [math.exp(dot(q, k) * scale) for k in K]
    norm = 1 / sum(exps)
    return [dot([e * norm for e in exps], [v[i] for v in V]) for i in range(len(q))]
