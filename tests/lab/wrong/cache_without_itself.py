"""run_with_cache: keep the token's own k and v before you attend"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = project(x, W)
        outputs.append(attend(q, K, V))
        K.append([store(n) for n in k])
        V.append([store(n) for n in v])
    return outputs
