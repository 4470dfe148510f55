"""run_with_cache: k and v of old tokens are made again at every step"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    outputs = []
    for t in range(1, len(xs) + 1):
        projected = [project(x, W) for x in xs[:t]]
        K, V = [p[1] for p in projected], [p[2] for p in projected]
        outputs.append(attend(projected[-1][0], K, V))
    return outputs
