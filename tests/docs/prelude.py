"""What the Python blocks of the docs take for granted: `my_model`, and a model and a cache written by hand."""

from __future__ import annotations

from typing import Any

import torch

import handwritten
from check.numpy_decoder import NumpyDecoder
from check.own_models import in_numpy
from kvtally.live import Adapter

torch.manual_seed(0)
NET = handwritten.Net().eval()


class MyCache(handwritten.Cache):
    """A cache that can take tokens back and put rows in another order."""

    def crop(self, n: int) -> None:
        self._each(lambda kept: kept[:, :, : kept.shape[2] - n])

    def reorder(self, rows: Any) -> None:
        self._each(lambda kept: kept[torch.as_tensor(rows)])

    def _each(self, change: Any) -> None:
        self.kept = {layer: (change(keys), change(values)) for layer, (keys, values) in self.kept.items()}


def model(ids: Any, cache: MyCache | None = None) -> Any:
    """Logits of all the ids; whatever vocabulary a page speaks of, there are 31 embeddings."""
    return NET(ids % handwritten.VOCAB, cache, ids.shape[1])


def my_model() -> Adapter:
    """A healthy decoder in NumPy: the quickest there is."""
    return in_numpy(NumpyDecoder())
