"""attend: the sign of the scores is turned"""


# ruff: noqa
def attend(q, K, V):
    scores = [-dot(q, k) / math.sqrt(len(q)) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [e / sum(exps) for e in exps]
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
