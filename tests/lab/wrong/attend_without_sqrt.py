"""attend: value: the scores are not divided by sqrt(d)"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [e / sum(exps) for e in exps]
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
