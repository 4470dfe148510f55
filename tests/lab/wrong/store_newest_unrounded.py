"""to_fp16: the newest token is read unrounded"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = project(x, W)
        outputs.append(attend(q, K + [k], V + [v]))
        K.append([store(n) for n in k])
        V.append([store(n) for n in v])
    return outputs
