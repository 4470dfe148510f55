"""Copies of everything, types looked at, printing on the way."""

# ruff: noqa
import copy


def mul(a, b):
    global multiplications
    assert isinstance(a, (int, float)) and isinstance(b, (int, float))
    multiplications += 1
    return +a * b


def run_with_cache(xs, W, store=lambda number: number):
    K, V, outputs = [], [], []
    for t, x in enumerate(copy.deepcopy(xs)):
        q, k, v = project(x, W)
        K.append([store(n) for n in copy.copy(k)])
        V.append([store(n) for n in v])
        outputs.append(attend(q, copy.deepcopy(K), V))
        print(f"step {t}: {outputs[-1][0]:.3f}", K[0][0])
    return outputs
