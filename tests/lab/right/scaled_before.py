"""The query is scaled, not the scores."""


# ruff: noqa
def attend(q, K, V):
    q = [a / math.sqrt(len(q)) for a in q]
    exps = [math.exp(dot(q, k)) for k in K]
    return [dot([e / sum(exps) for e in exps], column) for column in zip(*V)]
