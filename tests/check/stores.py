"""What goes wrong where keys and values are stored, and where a cache is cropped."""

from __future__ import annotations

from typing import Any

import torch

from check.planted import held

# Storage


def key_one_old(old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    return (old.keys[..., -1:, :] if past and key.shape[-2] == 1 else key), value


def value_one_old(old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    return key, (old.values[..., -1:, :] if past and key.shape[-2] == 1 else value)


def heads_swapped(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    return (key.flip(1) if past else key), value


def oldest_lost(old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    """From the seventh token on the oldest entry is another's."""
    if past >= 6:
        for held_ in (old.keys, old.values):
            held_[..., 0, :] = held_[..., 1, :]
    return key, value


def coarse(_old: Any, key: Any, value: Any, _past: int) -> tuple[Any, Any]:
    return (key * 32).round() / 32, (value * 32).round() / 32


def in_16_bits(_old: Any, key: Any, value: Any, _past: int) -> tuple[Any, Any]:
    small = [torch.empty(t.shape, dtype=torch.bfloat16).copy_(t) for t in (key, value)]
    return torch.empty_like(key).copy_(small[0]), torch.empty_like(value).copy_(small[1])


def row_swapped(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    """The rows of a batch trade places when one token more is stored."""
    return (key.roll(1, 0), value.roll(1, 0)) if past and key.shape[0] > 1 else (key, value)


def other_slot(update: Any) -> Any:
    """In a call on a cache layers 1 and 2 write into each other's slot."""

    def call(self: Any, key: Any, value: Any, index: int, *args: Any, **kwargs: Any) -> Any:
        slot = {1: 2, 2: 1}.get(index, index) if held(self, 0) > key.shape[-2] else index
        return update(self, key, value, slot, *args, **kwargs)

    return call


# Crop


def crop_by(more: int) -> Any:
    return lambda crop: lambda self, n: crop(self, n - more) if n else crop(self, n)


def crop_front(_crop: Any, *, only_values: bool = False) -> Any:
    def call(self: Any, n: int) -> None:
        if n and self.is_initialized:
            self.keys = self.keys[..., : -abs(n), :] if only_values else self.keys[..., abs(n) :, :]
            self.values = self.values[..., abs(n) :, :]

    return call


def crop_one_layer_wrong(crop: Any) -> Any:
    def call(self: Any, n: int) -> None:
        kept = self.layers[2].keys[..., abs(n) :, :]
        crop(self, n)
        self.layers[2].keys = kept

    return call


def crop_window_silently(crop: Any) -> Any:
    """Past the window the counter goes back, the entries stay."""

    def call(self: Any, n: int) -> None:
        if self.record_past or self.cumulative_length < self.sliding_window:
            crop(self, n)
        else:
            self.cumulative_length -= abs(n)

    return call


def nothing(_original: Any) -> Any:
    return lambda self, *_args, **_kwargs: None
