"""attend: the softmax is missing"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = scores
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
