"""attend: the keys are mixed where the values should be"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [e / sum(exps) for e in exps]
    return [dot(weights, [k[i] for k in K]) for i in range(len(q))]
