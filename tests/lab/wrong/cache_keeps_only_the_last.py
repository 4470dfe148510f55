"""run_with_cache: only the newest k and v are seen: the cache must grow"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    outputs = []
    for x in xs:
        q, k, v = project(x, W)
        K, V = [[store(n) for n in k]], [[store(n) for n in v]]
        outputs.append(attend(q, K, V))
    return outputs
