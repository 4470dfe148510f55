"""run_with_cache: every query sees all tokens"""


# ruff: noqa
def run_with_cache(xs, W, store=lambda number: number):
    projected = [project(x, W) for x in xs]
    K, V = [p[1] for p in projected], [p[2] for p in projected]
    return [attend(p[0], K, V) for p in projected]
