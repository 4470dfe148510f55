"""run_with_window: the window is one too wide"""


# ruff: noqa
def run_with_window(xs, W, window):
    K, V, outputs = [], [], []
    for x in xs:
        q, k, v = project(x, W)
        K.append(k)
        V.append(v)
        outputs.append(attend(q, K[-window - 1 :], V[-window - 1 :]))
    return outputs
