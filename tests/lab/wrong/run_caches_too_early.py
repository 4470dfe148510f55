"""run_without_cache: well done, this is a cache already"""


# ruff: noqa
def run_without_cache(xs, W):
    return run_with_cache(xs, W)
