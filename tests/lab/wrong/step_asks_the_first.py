"""step_without_cache: the first token's query attends at every step"""


# ruff: noqa
def step_without_cache(xs, W):
    projected = [project(x, W) for x in xs]
    return attend(projected[0][0], [p[1] for p in projected], [p[2] for p in projected])
