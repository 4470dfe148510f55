"""to_fp16: nothing is rounded: pass every number of k and v through store"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = project(x, W)
        K.append(k)
        V.append(v)
        outputs.append(attend(q, K, V))
    return outputs
