"""attend: the weights are not divided by their sum"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    exps = [math.exp(s) for s in scores]
    weights = exps
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
