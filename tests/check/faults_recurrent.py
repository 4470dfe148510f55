"""Faults of layers with a state, and of caches that hold both states and keys: in what is kept and how it goes on."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import torch
from transformers.cache_utils import (
    Cache,
    DynamicLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)
from transformers.models.falcon_h1 import modeling_falcon_h1
from transformers.models.mamba2 import modeling_mamba2

from check.planted import Fault

SMALL = torch.bfloat16


def chunk_padded(update: Any) -> Any:
    """A chunk shorter than the kernel is stored with zeros before it, in place of what was held."""

    def call(self: Any, states: Any, state_idx: int = 0, **kwargs: Any) -> Any:
        later = self.has_previous_state[state_idx]
        full = update(self, states, state_idx, **kwargs)
        kept, new = self.conv_states[state_idx], states.shape[-1]
        if later and 1 < new < kept.shape[-1]:
            kept[..., :-new] = 0
        return full

    return call


def decayed_twice(scan: Any) -> Any:
    """The state that a chunk begins with has lost a little more than it should."""

    @wraps(scan)
    def call(*args: Any, **given: Any) -> Any:
        before = given.get("initial_states")
        return scan(*args, **(given | {"initial_states": None if before is None else before * 0.98}))

    return call


def step_clamped(step: Any) -> Any:
    """The time step of a single token is clamped, those of a longer call are not."""

    @wraps(step)
    def call(state: Any, hidden: Any, dt: Any, *args: Any, **given: Any) -> Any:
        return step(state, hidden, dt.clamp(max=1.0), *args, **given)

    return call


def state_in_16_bits(update: Any) -> Any:
    def call(self: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        small = torch.empty(states.shape, dtype=SMALL).copy_(states)
        return update(self, torch.empty_like(states).copy_(small), *args, **kwargs)

    return call


def keys_alone(_operation: Any, *, name: str) -> Any:
    """What is done to a cache is done to keys and values, not to the states beside them."""
    return getattr(DynamicLayer, name)


def states_trade_layers(update: Any) -> Any:
    """From the first call on a cache on, layers 0 and 1 write each other's recurrent state."""

    def call(self: Any, states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + (layer_idx == 0)
        slot = {0: 1, 1: 0}.get(layer_idx, layer_idx) if self.calls > 1 else layer_idx
        return update(self, states, slot, *args, **kwargs)

    return call


def reset_leaves(reset: Any, *, kept: str) -> Any:
    """A reset that forgets one of the two states."""

    def call(self: Any) -> None:
        before = {k: s.clone() for k, s in getattr(self, kept).items() if s is not None}
        had = dict(self.has_previous_state)
        reset(self)
        for index, state in before.items():
            getattr(self, kept)[index].copy_(state)
        self.has_previous_state.update(had)

    return call


def state_on_module(forward: Any) -> Any:
    """The convolution state is read from the module, where the last call of any cache has left it."""

    @wraps(forward)
    def call(self: Any, hidden_states: Any, cache: Any = None, **given: Any) -> Any:
        layer = None if cache is None else cache.layers[self.layer_idx]
        if layer is not None and layer.has_previous_state[0] and self.left.shape == layer.conv_states[0].shape:
            layer.conv_states[0].copy_(self.left)
        out = forward(self, hidden_states, cache=cache, **given)
        if layer is not None:
            self.left = layer.conv_states[0].clone()
        return out

    return call


def first_gate(step: Any) -> Any:
    """Every step decays the state as the first one did, whose gate is kept beside the function."""
    first: dict[tuple[Any, ...], Any] = {}

    @wraps(step)
    def call(state: Any, hidden: Any, dt: Any, *args: Any, **given: Any) -> Any:
        return step(state, hidden, first.setdefault((*dt.shape, dt.dtype), dt), *args, **given)

    return call


def mask_unread(forward: Any) -> Any:
    """Padding goes into the states like any other token."""

    @wraps(forward)
    def call(self: Any, hidden_states: Any, *args: Any, **given: Any) -> Any:
        return forward(self, hidden_states, *args, **(given | {"attention_mask": None}))

    return call


def fault(name: str, owner: Any, method: str, make: Any, *groups: str, **more: Any) -> Fault:
    kind, model = more.pop("kind", "recurrent"), more.pop("model", "mamba2")
    return Fault(name=name, kind=kind, model=model, groups=groups, patches=((owner, method, make),), **more)


STATES = LinearAttentionCacheLayerMixin
MIXED = LinearAttentionAndFullAttentionLayer
FAULTS: tuple[Fault, ...] = (
    fault("a short chunk stored with zeros before it", LinearAttentionLayer, "update_conv_state", chunk_padded,
          "steps", where=("conv_states", "layer 0")),
    fault("state decayed once more where a chunk begins", modeling_mamba2, "mamba2_chunk_scan", decayed_twice,
          "steps", where=("recurrent_states", "layer 0")),
    fault("time step clamped in a step alone", modeling_mamba2, "mamba2_selective_state_update", step_clamped,
          "steps", where=("recurrent_states", "layer 0")),
    fault("state stored in bfloat16", LinearAttentionLayer, "update_recurrent_state", state_in_16_bits, "steps",
          where=("recurrent_states", "layer 0", "bfloat16"), verdicts=("LOSSY",)),
    fault("hybrid reorder of keys and values alone", MIXED, "reorder_cache", partial(keys_alone, name="reorder_cache"),
          "batch", model="falcon_h1", where=("layer 0", "states")),
    fault("hybrid reset of keys and values alone", MIXED, "reset", partial(keys_alone, name="reset"), "reuse",
          model="falcon_h1", where=("layer 0", "states")),
    fault("two layers write each other's state", Cache, "update_recurrent_state", states_trade_layers, "steps",
          where=("recurrent_states", "layer 0")),
    fault("reset leaves the convolution state", STATES, "reset", partial(reset_leaves, kept="conv_states"), "reuse",
          where=("states", "layer 0")),
    fault("convolution state kept on the module", modeling_mamba2.Mamba2Mixer, "forward", state_on_module, "batch",
          "reuse", kind="state on the module", where=("conv_states", "layer 0")),
    fault("time step of the first step in every step", modeling_mamba2, "mamba2_selective_state_update", first_gate,
          "steps", where=("recurrent_states", "layer 0")),
    fault("padding goes into the states", modeling_falcon_h1.FalconH1Mixer, "forward", mask_unread, "padding",
          model="falcon_h1", where=("conv_states", "layer 0")),
)  # fmt: skip
