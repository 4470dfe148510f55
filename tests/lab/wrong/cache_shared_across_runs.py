"""run_with_cache: the cache is shared across runs, make it inside the function"""

# ruff: noqa
K_CACHE, V_CACHE = [], []


def run_with_cache(xs, W, store=lambda number: number):
    outputs = []
    for x in xs:
        q, k, v = project(x, W)
        K_CACHE.append([store(n) for n in k])
        V_CACHE.append([store(n) for n in v])
        outputs.append(attend(q, K_CACHE, V_CACHE))
    return outputs
