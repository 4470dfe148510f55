"""attend: the scores are divided by the square root of the number of keys"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(K)) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [e / sum(exps) for e in exps]
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
