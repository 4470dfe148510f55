"""run_with_cache: queries of old tokens are made again"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for t, x in enumerate(xs):
        for old in xs[:t]:
            [dot(row, old) for row in W[0]]
        q, k, v = project(x, W)
        K.append(k)
        V.append(v)
        outputs.append(attend(q, K, V))
    return outputs
