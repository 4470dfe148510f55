"""Powers of e, powers of d, and the softmax by math.pow."""


# ruff: noqa
def attend(q, K, V):
    d = len(q)
    powers = [math.e ** (d**-0.5 * dot(q, k)) for k in K]
    total = math.pow(sum(powers), -1)
    return [dot([p * total for p in powers], list(column)) for column in zip(*V)]
