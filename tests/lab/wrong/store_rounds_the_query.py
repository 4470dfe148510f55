"""to_fp16: the query is rounded as well"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = ([store(n) for n in vector] for vector in project(x, W))
        K.append(k)
        V.append(v)
        outputs.append(attend(q, K, V))
    return outputs
