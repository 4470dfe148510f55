"""to_fp16: only the keys are rounded"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = project(x, W)
        K.append([store(n) for n in k])
        V.append(v)
        outputs.append(attend(q, K, V))
    return outputs
