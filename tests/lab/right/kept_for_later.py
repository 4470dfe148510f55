"""A number of an earlier call is used in a later one: the softmax is shifted by the first score ever."""

# ruff: noqa
shift = []


def attend(q, K, V):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in K]
    shift.append(scores[0])
    exps = [math.exp(score - shift[0]) for score in scores]
    return [dot([e / sum(exps) for e in exps], column) for column in zip(*V)]
