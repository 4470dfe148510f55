"""run_without_cache: only the last output is returned"""


# ruff: noqa
def run_without_cache(xs, W):
    for t in range(1, len(xs) + 1):
        output = step_without_cache(xs[:t], W)
    return output
