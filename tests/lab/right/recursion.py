"""The loop is a recursion."""


# ruff: noqa
def run_without_cache(xs, W):
    return [] if not xs else [*run_without_cache(xs[:-1], W), step_without_cache(xs, W)]


def run_with_cache(xs, W, store=lambda number: number):
    def go(rest, K, V):
        if not rest:
            return []
        q, k, v = project(rest[0], W)
        K, V = [*K, [store(n) for n in k]], [*V, [store(n) for n in v]]
        return [attend(q, K, V), *go(rest[1:], K, V)]

    return go(xs, [], [])
