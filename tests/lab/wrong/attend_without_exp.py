"""attend: the weights are scores divided by their sum"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [s / sum(scores) for s in scores]
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
