"""attend: the query is compared with the values"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, v) / math.sqrt(len(q)) for v in V]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [e / sum(exps) for e in exps]
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
