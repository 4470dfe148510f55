"""Faults of mixed caches, of windows that are preallocated or recorded, and of what differs by call."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from transformers import LlamaForCausalLM
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    StaticSlidingWindowLayer,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from check.planted import Fault, call_of, storing


def states_in_order(_reorder: Any, *, kept: str) -> Any:
    """A reorder of one of the two states only; `kept` stays as it was."""

    def call(self: Any, rows: Any) -> None:
        moved = self.recurrent_states if kept == "conv_states" else self.conv_states
        for index, state in moved.items():
            if state is not None:
                moved[index] = state.index_select(0, rows)

    return call


def window_rolled(update: Any) -> Any:
    """A preallocated window that is full keeps its entries one place off."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        stored = update(self, *args, **kwargs)
        if self.get_seq_length() > self.max_cache_len:
            self.keys.copy_(self.keys.roll(1, 2))
        return stored

    return call


def recorded_crop_forgets(crop: Any) -> Any:
    """What a recorded window brings back lacks its oldest entry."""

    def call(self: Any, n: int) -> None:
        crop(self, n)
        if n and self.record_past:
            self.keys, self.values = self.keys.clone(), self.values.clone()
            self.keys[..., 0, :] = self.values[..., 0, :] = 0

    return call


def layers_shared(init: Any) -> Any:
    """Every cache has the layers of the first one, as a default argument that is changed."""
    first: dict[int, Any] = {}

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.layers = first.setdefault(len(self.layers), self.layers)

    return call


def repeat_values_whole(_repeat: Any) -> Any:
    def call(self: Any, n: int) -> None:
        self.keys, self.values = self.keys.repeat_interleave(n, 0), self.values.repeat(n, 1, 1, 1)

    return call


def select_keys_only(select: Any) -> Any:
    def call(self: Any, rows: Any) -> None:
        first = self.values[: len(rows)]
        select(self, rows)
        self.values = first

    return call


def first_row_for_all(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    return (key[:1].expand_as(key), value) if past else (key, value)


def long_calls_cut(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    """Of a long call on a cache only the last two tokens are stored."""
    if past and key.shape[-2] > 2:
        key, value = key.clone(), value.clone()
        key[..., :-2, :] = value[..., :-2, :] = 0
    return key, value


def dropped_out(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    return (torch.nn.functional.dropout(key, 0.1), value) if past else (key, value)


def key_and_value_swapped(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    return (value, key) if past else (key, value)


def faint(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
    """A fault so small that it drowns in the rounding of float32."""
    return (key * (1 + 2e-5) if past else key), value


def mask_flipped(given: dict[str, Any], past: int, _new: int) -> None:
    if past and given.get("attention_mask") is not None:
        given["attention_mask"] = given["attention_mask"].flip(1)


def base_by_length(forward: Any) -> Any:
    """Rotation that depends on the length of the text: older keys would have to be rotated again."""

    @wraps(forward)
    def call(self: Any, x: Any, position_ids: Any) -> Any:
        return forward(self, x, position_ids / (1 + position_ids.max() / 64))

    return call


def fault(name: str, kind: str, owner: Any, method: str, make: Any, *groups: str, **more: Any) -> Fault:
    model = more.pop("model", "llama")
    return Fault(name=name, kind=kind, model=model, groups=groups, patches=((owner, method, make),), **more)


def stored(name: str, change: Any, *groups: str, **more: Any) -> Fault:
    return fault(name, more.pop("kind", "storage"), Cache, "update", storing(change), *groups, **more)


MIXED = (LinearAttentionCacheLayerMixin, "reorder_cache")
SLIDING = DynamicSlidingWindowLayer
FAULTS: tuple[Fault, ...] = (
    fault("reorder without the convolution state", "recurrent", *MIXED,
          lambda f: states_in_order(f, kept="conv_states"), "batch", model="mamba2", where=("layer 0", "conv_states")),
    fault("reorder without the recurrent state", "recurrent", *MIXED,
          lambda f: states_in_order(f, kept="recurrent_states"), "batch", model="mamba2",
          where=("layer 0", "recurrent_states")),
    fault("a full static window one place off", "windows", StaticSlidingWindowLayer, "update", window_rolled, "static",
          model="gemma3_text", where=("layer 0",)),
    fault("a recorded window lacks its oldest entry", "crop", SLIDING, "crop", recorded_crop_forgets, "edit",
          model="gemma3_text", where=("layer 0", "missing entry")),
    fault("all caches have the layers of the first", "sharing", DynamicCache, "__init__", layers_shared, "reuse",
          "batch"),
    fault("values repeated in the wrong order", "batch", DynamicLayer, "batch_repeat_interleave", repeat_values_whole,
          "batch", where=("layer 0", "value")),
    fault("rows of keys selected, of values not", "batch", DynamicLayer, "batch_select_indices", select_keys_only,
          "batch", where=("layer 0", "value")),
    stored("the first row's key stored for all", first_row_for_all, "batch", "padding", kind="batch",
           where=("layer 0", "rows swapped")),
    stored("of a long call two tokens are stored", long_calls_cut, "steps", where=("layer 0", "empty")),
    stored("dropout in the cached path", dropped_out, "steps", where=("layer 0", "key")),
    stored("key and value trade places", key_and_value_swapped, "steps", where=("layer 0", "wrong part")),
    stored("keys faintly larger", faint, "steps", where=("layer 0", "key")),
    fault("padding mask flipped in decode", "masks", LlamaForCausalLM, "forward", call_of(mask_flipped), "padding"),
    fault("rotation by the length of the text", "uncached", LlamaRotaryEmbedding, "forward", base_by_length, "power",
          "steps", verdicts=("not comparable",)),
)  # fmt: skip
