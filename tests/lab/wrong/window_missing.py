"""run_with_window: there is no window"""


# ruff: noqa
def run_with_window(xs, W, window):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = project(x, W)
        K.append(k)
        V.append(v)
        outputs.append(attend(q, K[:], V[:]))
    return outputs
