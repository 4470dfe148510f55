"""Rows that are hard to round, and random ones: what schemes and their references are compared on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


def hard(width: int) -> Rows:
    """Rows of one kind each: equal, zero, -0, one outlier, ties, denormals, scales around the least of fp16."""
    draw = np.random.default_rng(7)
    noise = draw.standard_normal(width)
    ramp = np.arange(width) % 15 - 7.0
    outlier, other = 0.01 * noise, 0.01 * noise
    outlier, other = outlier.copy(), other.copy()
    outlier[width // 3], other[-1] = 12000.0, -12000.0
    opposite = np.where(np.arange(width) % 2, 5.0, -5.0)
    rows = [
        np.zeros(width), np.full(width, -0.0), np.where(np.arange(width) % 2, 0.0, -0.0),
        np.full(width, 3.7), np.full(width, -0.1), outlier, other, opposite, -opposite,
        ramp, ramp / 2, ramp / 4 + 0.125, np.abs(ramp), -np.abs(ramp) - 1, 2.0**ramp, ramp * 0.5 + 100,
        noise * 1e-40, noise * 1e-38, noise * 2e-8, noise * 6e-6, noise * 6e-5, noise * 1e4 / 5,
        np.r_[noise[: width // 2], np.zeros(width - width // 2)],
        np.linspace(-448, 448, width), np.linspace(-2700, 2700, width), np.linspace(0, 60000, width),
        *(half_steps(width, low, high) for n in (3, 8, 15, 16, 31, 127, 255) for low, high in ((0, n), (-n, n))),
    ]  # fmt: skip
    return np.stack(rows).astype(np.float32)


def half_steps(width: int, low: int, high: int) -> NDArray[np.float64]:
    """From `low` to `high` and in between halves of integers: ties, where a step is 1."""
    between = low + np.arange(width) % (high - low) + 0.5
    between[0], between[-1] = low, high
    return between


def random(seed: int, rows: int, width: int) -> Rows:
    """Normal numbers, each row at a size of its own from 10^-6 to 10^4, some rows shifted."""
    draw = np.random.default_rng(seed)
    size = 10 ** draw.uniform(-6, 4, (rows, 1))
    return (size * (draw.standard_normal((rows, width)).clip(-5, 5) + draw.integers(-1, 2, (rows, 1)))).astype(
        np.float32
    )
