"""Two decoders that are not of transformers, each an Adapter of a few functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import handwritten
from check import numpy_decoder
from check.numpy_decoder import NumpyDecoder
from kvtally.live.adapter import Adapter


def by_hand(net: handwritten.Net, *, crop_extra: int = 0) -> Adapter:
    """The hand-written PyTorch model; `crop_extra` plants a fault: that many tokens too many are removed."""

    def each(cache: handwritten.Cache, change: Any) -> None:
        cache.kept = {layer: (change(keys), change(values)) for layer, (keys, values) in cache.kept.items()}

    def crop(cache: handwritten.Cache, n: int) -> None:
        each(cache, lambda kept: kept[:, :, : kept.shape[2] - n - crop_extra])

    return Adapter(
        full=lambda ids: net(ids, None, ids.shape[1]),
        extend=lambda cache, ids: net(ids, cache, ids.shape[1]),
        fresh=handwritten.Cache,
        vocab_size=handwritten.VOCAB,
        crop=crop,
        reorder=lambda cache, rows: each(cache, lambda kept: kept[torch.as_tensor(rows)]),
        batch=lambda cache, rows: each(cache, lambda kept: kept[torch.as_tensor(rows)]),
        model=net,
        name="handwritten",
    )


def in_numpy(decoder: NumpyDecoder) -> Adapter:
    """The NumPy decoder: no torch module behind it, float64 as it is."""

    def crop(cache: numpy_decoder.Cache, n: int) -> None:
        cache.each(lambda kept: kept[:, :, : kept.shape[2] - n])

    return Adapter(
        full=decoder.run,
        extend=lambda cache, ids: decoder.run(ids, cache),
        fresh=numpy_decoder.Cache,
        vocab_size=numpy_decoder.VOCAB,
        crop=crop,
        reorder=lambda cache, rows: cache.each(lambda kept: kept[np.asarray(rows)]),
        name="in NumPy",
    )
