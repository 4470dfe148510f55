"""attend: only the highest score counts"""


# ruff: noqa
def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    exps = [math.exp(s - max(scores)) for s in scores]
    weights = [1.0 if s == max(scores) else 0.0 for s in scores]
    return [dot(weights, [v[i] for v in V]) for i in range(len(q))]
