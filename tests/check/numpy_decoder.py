"""A decoder in NumPy arrays alone, no PyTorch in it: two layers, grouped-query attention, rotary positions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, VOCAB = 2, 14, 6, 2, 4, 22, 31
SHAPES = {"q": (HIDDEN, HEADS * HEAD_DIM), "k": (HIDDEN, KV_HEADS * HEAD_DIM), "v": (HIDDEN, KV_HEADS * HEAD_DIM),
          "o": (HEADS * HEAD_DIM, HIDDEN), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}  # fmt: skip


def normed(x: Floats) -> Floats:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def rotated(x: Floats, start: int) -> Floats:
    """(rows, heads, tokens, HEAD_DIM), each pair of numbers turned by its position, `start` the first one's."""
    angle = (start + np.arange(x.shape[2]))[:, None] / 100.0 ** (np.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


@dataclass
class Cache:
    """Keys and values by layer, each (rows, KV_HEADS, tokens, HEAD_DIM)."""

    keys: dict[int, Floats] = field(default_factory=dict)
    values: dict[int, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.keys[0].shape[2] if self.keys else 0

    def each(self, change: object) -> None:
        for held in (self.keys, self.values):
            held.update({layer: change(kept) for layer, kept in held.items()})  # type: ignore[operator]


class NumpyDecoder:
    """`run(ids, cache)` gives logits (rows, tokens, VOCAB); `restarts` plants a fault: cached calls start at 0."""

    def __init__(self, *, restarts: bool = False) -> None:
        numbers = np.random.default_rng(7)
        draw = lambda shape: numbers.normal(0, 1.2 / shape[0] ** 0.5, shape)  # noqa: E731
        self.restarts, self.wte, self.head = restarts, numbers.normal(0, 1, (VOCAB, HIDDEN)), draw((HIDDEN, VOCAB))
        self.layers = [{name: draw(shape) for name, shape in SHAPES.items()} for _ in range(LAYERS)]

    def run(self, ids: object, cache: Cache | None = None) -> Floats:
        x = self.wte[np.asarray(ids)]
        past = 0 if cache is None else len(cache)
        for index, w in enumerate(self.layers):
            x = x + self.attention(index, w, normed(x), cache, past)
            x = x + np.tanh(normed(x) @ w["up"]) @ w["down"]
        return normed(x) @ self.head

    def attention(self, index: int, w: dict[str, Floats], x: Floats, cache: Cache | None, past: int) -> Floats:
        q, k, v = (np.swapaxes((x @ w[n]).reshape(*x.shape[:2], -1, HEAD_DIM), 1, 2) for n in "qkv")
        start = 0 if self.restarts else past
        q, k = rotated(q, start), rotated(k, start)
        if cache is not None:
            if past:
                k, v = np.concatenate([cache.keys[index], k], 2), np.concatenate([cache.values[index], v], 2)
            cache.keys[index], cache.values[index] = k, v
        k, v = (np.repeat(t, HEADS // KV_HEADS, 1) for t in (k, v))
        scores = q @ np.swapaxes(k, 2, 3) / HEAD_DIM**0.5
        scores = np.where(np.tri(q.shape[2], k.shape[2], past, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ v
        return np.swapaxes(mixed, 1, 2).reshape(*x.shape[:2], -1) @ w["o"]
