"""Caches that a model brings itself, and what every cache holds for each layer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import torch

ONE_ROW = ("rwkv", "xlstm")  # their cache is made for so many sequences, here for one
RWKV_STATES = 5  # what the token before was, before mixer and MLP; numerator, denominator and maximum of its sums


def own_cache(model: Any) -> Callable[[], Any] | None:
    """A function that makes the empty cache that this model brings itself, or None where it takes the usual one."""
    own = {"minimax": _minimax, "rwkv": _rwkv, "xlstm": _xlstm}.get(model.config.model_type)
    return own(model) if own else None


def _minimax(_model: Any) -> Callable[[], Any]:
    from transformers.models.minimax.modeling_minimax import MiniMaxCache

    fresh: Callable[[], Any] = MiniMaxCache
    return fresh


def _xlstm(model: Any) -> Callable[[], Any]:
    from transformers.models.xlstm.modeling_xlstm import xLSTMCache

    return lambda: xLSTMCache(model.config, 1, dtype=model.dtype, device=model.device)


def _rwkv(model: Any) -> Callable[[], Any]:
    """States as RWKV starts them: the maximum far below any number, the others 0."""
    shape = (1, model.config.hidden_size, model.config.num_hidden_layers)

    def states() -> list[Any]:
        zeros = [torch.zeros(shape, dtype=model.dtype if k < 2 else torch.float32) for k in range(RWKV_STATES)]
        zeros[-1] -= 1e30
        return [state.to(model.device) for state in zeros]

    return states


def layers_of(cache: Any) -> list[Any]:
    """What a cache holds, a tree of tensors for each layer."""
    if isinstance(cache, list):
        return [[state[..., index] for state in cache] for index in range(cache[0].shape[-1])]
    if hasattr(cache, "rnn_state"):
        return list(cache.rnn_state.values())
    held = [vars(layer) for layer in cache.layers]
    return list(zip_longest(held, cache.linear_cache, fillvalue=())) if hasattr(cache, "linear_cache") else held


def states_on_modules(model: Any) -> dict[int, int]:
    """Elements of state that modules keep on themselves (RecurrentGemma), by layer."""
    found: dict[int, int] = {}
    for name, module in model.named_modules():
        for own in ("conv1d_state", "recurrent_states"):
            state = vars(module).get(own)
            if isinstance(state, torch.Tensor):
                layer = next(int(part) for part in name.split(".") if part.isdecimal())
                found[layer] = found.get(layer, 0) + state.numel()
    return found
