"""While loops and indices, other names inside."""


# ruff: noqa
def dot(first, second):
    i, so_far = 0, 0.0
    while i < len(first):
        so_far = so_far + mul(first[i], second[i])
        i += 1
    return so_far


def attend(query, keys, values):
    raw = []
    for j in range(len(keys)):
        raw.append(dot(query, keys[j]) / (len(query) ** 0.5))
    top = raw[0]
    for r in raw:
        if r > top:
            top = r
    total = 0
    for j in range(len(raw)):
        raw[j] = math.exp(raw[j] - top)
        total += raw[j]
    result = [0] * len(values[0])
    for j in range(len(values)):
        for i in range(len(result)):
            result[i] += mul(raw[j] / total, values[j][i])
    return result
