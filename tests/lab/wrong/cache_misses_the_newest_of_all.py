"""run_with_cache: the first token is never seen"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for t, x in enumerate(xs):
        q, k, v = project(x, W)
        K.append(k)
        V.append(v)
        outputs.append(attend(q, K[1:] or K, V[1:] or V))
    return outputs
