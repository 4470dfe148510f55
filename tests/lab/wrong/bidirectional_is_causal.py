"""run_bidirectional: no query sees the later tokens"""


# ruff: noqa
def run_bidirectional(xs, W):
    return run_with_cache(xs, W)
