"""run_batch: the answers are swapped"""


# ruff: noqa
def run_batch(requests, W):
    return [run_with_cache(xs, W) for xs in reversed(requests)]
