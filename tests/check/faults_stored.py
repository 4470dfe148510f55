"""Faults of storage, crop, batch, static caches, sharing, states, latents and experts: in what is kept."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import torch
from transformers import LlamaForCausalLM
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
    StaticLayer,
)
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextAttention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

from check.planted import Fault, Patch, held, storing
from check.stores import (
    coarse,
    crop_by,
    crop_front,
    crop_one_layer_wrong,
    crop_window_silently,
    heads_swapped,
    in_16_bits,
    key_one_old,
    nothing,
    oldest_lost,
    other_slot,
    row_swapped,
    value_one_old,
)

# Batch


def reorder_keys_only(_reorder: Any) -> Any:
    def call(self: Any, rows: Any) -> None:
        self.keys = self.keys.index_select(0, rows)

    return call


def reorder_twice(reorder: Any) -> Any:
    def call(self: Any, rows: Any) -> None:
        reorder(self, rows)
        reorder(self, rows)

    return call


def reorder_other(reorder: Any) -> Any:
    return lambda self, rows: reorder(self, rows.flip(0))


def reorder_half(_reorder: Any) -> Any:
    """The second half of the layers stays as it was."""

    def call(self: Any, rows: Any) -> None:
        for layer in self.layers[: len(self.layers) // 2]:
            layer.reorder_cache(rows)

    return call


def select_next(select: Any) -> Any:
    return lambda self, rows: select(self, (torch.as_tensor(rows) + 1) % self.keys.shape[0])


def repeat_whole(_repeat: Any) -> Any:
    def call(self: Any, n: int) -> None:
        self.keys, self.values = self.keys.repeat(n, 1, 1, 1), self.values.repeat(n, 1, 1, 1)

    return call


# Static caches


def written_early(update: Any) -> Any:
    """A token after the prompt is written over the one before it."""

    def call(self: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        past = int(self.get_seq_length())
        if past:
            self.cumulative_length.sub_(1)
        stored = update(self, key, value, *args, **kwargs)
        if past:
            self.cumulative_length.add_(1)
        return stored

    return call


def read_late(forward: Any) -> Any:
    """Positions read off the live counter of layer 0 again, after that layer has counted on."""

    @wraps(forward)
    def call(self: Any, *args: Any, **given: Any) -> Any:
        cache, hidden = given.get("cache"), args[0] if args else given["hidden_states"]
        if cache is not None and self.self_attn.layer_idx and type(cache.layers[0]) is StaticLayer:
            ids = torch.arange(hidden.shape[1])[None] + cache.get_seq_length()
            rotary = getattr(cache, "rotary", None)
            if rotary is None:
                rotary = cache.rotary = LlamaRotaryEmbedding(self.self_attn.config).to(hidden.dtype)
            past = held(cache) > hidden.shape[1]
            given["position_embeddings"] = rotary(hidden, ids) if past else given["position_embeddings"]
        return forward(self, *args, **given)

    return call


def branch_shares_tensors(_copy: Any) -> Any:
    """A copy with counters of its own and the tensors of the other."""

    def call(self: Any, _memo: Any) -> Any:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.cumulative_length = self.cumulative_length.clone()
        return twin

    return call


def branch_is_the_same(_copy: Any) -> Any:
    return lambda self, _memo: self


# State on the module, another prompt's prefix


def shifted(forward: Any) -> Any:
    """A third of the token before is mixed in, and the last token is kept on the module instead of in the cache."""

    @wraps(forward)
    def call(self: Any, hidden_states: Any, *args: Any, **given: Any) -> Any:
        cache = given.get("cache")
        past = held(cache, self.self_attn.layer_idx)
        first = self.last if past else torch.zeros_like(hidden_states[:, :1])
        first = first if first.shape[0] == hidden_states.shape[0] else first[:1].expand(hidden_states.shape[0], -1, -1)
        if cache is not None:
            self.last = hidden_states[:, -1:]
        mixed = hidden_states + torch.cat([first, hidden_states[:, :-1]], 1) / 3
        return forward(self, mixed, *args, **given)

    return call


def by_length(forward: Any) -> Any:
    """The K and V of a first call are those of whatever prompt of that length came first."""

    @wraps(forward)
    def call(self: Any, *args: Any, **given: Any) -> Any:
        cache, hidden = given.get("cache"), args[0] if args else given["hidden_states"]
        first = cache is not None and not held(cache, self.layer_idx) and hidden.shape[1] > 1
        out = forward(self, *args, **given)
        if first and type(cache.layers[self.layer_idx]) is DynamicLayer:
            layer, stored = cache.layers[self.layer_idx], self.__dict__.setdefault("stored", {})
            kept = stored.setdefault(tuple(layer.keys.shape), (layer.keys, layer.values))
            layer.keys, layer.values = kept
        return out

    return call


def stale_donor(forward: Any) -> Any:
    """Layers that share K and V read what the donor gave one call ago, where it has the same number of tokens."""

    @wraps(forward)
    def call(self: Any, *args: Any, **given: Any) -> Any:
        cache, shared = given.get("cache"), given.get("shared_kv_states")
        if cache is None or not self.is_kv_shared_layer or shared is None:
            return forward(self, *args, **given)
        keys, values = shared[self.layer_type]
        shared[self.layer_type] = keys.roll(1, 2) if held(cache) > 6 else keys, values
        out = forward(self, *args, **given)
        shared[self.layer_type] = keys, values
        return out

    return call


# States of recurrent layers


def state_forgotten(get: Any) -> Any:
    """A call of several tokens starts from an empty state."""

    def call(self: Any, index: int, state_idx: int = 0) -> Any:
        state = get(self, index, state_idx)
        return torch.zeros_like(state) if state is not None and self.several else state

    return call


def tells_length(forward: Any) -> Any:
    @wraps(forward)
    def call(self: Any, hidden_states: Any, cache: Any = None, *args: Any, **given: Any) -> Any:
        if cache is not None:
            cache.several = hidden_states.shape[1] > 1
        return forward(self, hidden_states, cache, *args, **given)

    return call


def convolution_shifted(update: Any, *, right: bool = False) -> Any:
    """What is kept for the convolution stands one place off, or a short prompt is padded on the right."""

    def call(self: Any, states: Any, state_idx: int = 0, **kwargs: Any) -> Any:
        short = states.shape[-1] < (kwargs.get("conv_kernel_size") or 0) and not self.has_previous_state[state_idx]
        full = update(self, states, state_idx, **kwargs)
        kept = self.conv_states[state_idx]
        if not right:
            kept.copy_(kept.roll(1, -1))
        elif short:
            kept.copy_(torch.nn.functional.pad(states, (0, kept.shape[-1] - states.shape[-1])))
        return full

    return call


def clamped(update: Any) -> Any:
    """The state that is kept is clamped, the one that a pass without a cache carries is not."""

    def call(self: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        return update(self, states.clamp(-0.05, 0.05), *args, **kwargs)

    return call


# Latents and experts


def unrotated(rotate: Any) -> Any:
    def call(q: Any, k: Any, *args: Any, **kwargs: Any) -> Any:
        turned, stored = rotate(q, k, *args, **kwargs)
        if q.shape[2] > 1:
            return turned, stored
        whole = k.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)  # laid out as the rotated one, not turned
        return turned, whole.expand_as(stored)

    return call


def capacity(forward: Any, *, short_calls_only: bool) -> Any:
    """A call has room for so many tokens an expert; what comes late has no weight."""

    def call(self: Any, hidden_states: Any) -> Any:
        logits, scores, indices = forward(self, hidden_states)
        tokens = indices.shape[0]
        if short_calls_only:
            scores = torch.where(torch.arange(self.top_k) < 1, scores, 0) if tokens == 1 else scores
            return logits, scores, indices
        room = max(1, tokens * self.top_k // self.num_experts)
        chosen = torch.nn.functional.one_hot(indices.flatten(), self.num_experts)
        place = (chosen.cumsum(0) * chosen).sum(-1).view_as(indices)
        return logits, torch.where(place <= room, scores, 0), indices

    return call


# Generation


def prepared(change: Any) -> Any:
    def make(prepare: Any) -> Any:
        @wraps(prepare)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            inputs = prepare(self, *args, **kwargs)
            if held(inputs.get("cache")):
                change(inputs)
            return inputs

        return call

    return make


def generated_one_late(inputs: dict[str, Any]) -> None:
    if inputs.get("position_ids") is not None:
        inputs["position_ids"] = inputs["position_ids"] + 1


def fault(name: str, kind: str, owner: Any, method: str, make: Any, *groups: str, **more: Any) -> Fault:
    patches: tuple[Patch, ...] = ((owner, method, make), *more.pop("also", ()))
    return Fault(name=name, kind=kind, model=more.pop("model", "llama"), groups=groups, patches=patches, **more)


def stored(name: str, change: Any, *groups: str, layer: int | None = None, **more: Any) -> Fault:
    kind = more.pop("kind", "storage")
    return fault(name, kind, Cache, "update", storing(change, layer=layer), *(groups or ("steps",)), **more)


LOSSY = ("LOSSY", "DEFECT")
REORDER = (CacheLayerMixin, "reorder_cache")
FAULTS: tuple[Fault, ...] = (
    stored("last key one step old", key_one_old, where=("layer 0", "key")),
    stored("last key one step old in layer 2", key_one_old, layer=2, where=("layer 2", "key")),
    stored("last value one step old in layer 1", value_one_old, layer=1, where=("layer 1", "value")),
    stored("last value one step old, learned table", value_one_old, model="gpt2", where=("layer 0", "value")),
    stored("heads of the new keys swapped in layer 1", heads_swapped, layer=1, where=("layer 1", "key")),
    stored("the oldest entry replaced", oldest_lost, where=("layer 0", "position 0")),
    stored("stored coarsely", coarse, verdicts=LOSSY),
    stored("stored in bfloat16", in_16_bits, verdicts=LOSSY),
    stored("latent stored in bfloat16", in_16_bits, model="deepseek_v3", verdicts=LOSSY),
    fault("layers 1 and 2 write into each other's slot", "storage", Cache, "update", other_slot, "steps",
          where=("layer 1",)),
    fault("crop takes one too few", "crop", DynamicLayer, "crop", crop_by(-1), "edit"),
    fault("crop takes one too many", "crop", DynamicLayer, "crop", crop_by(1), "edit"),
    fault("crop takes the oldest", "crop", DynamicLayer, "crop", crop_front, "edit", where=("layer 0",)),
    fault("crop takes the newest keys, the oldest values", "crop", DynamicLayer, "crop",
          partial(crop_front, only_values=True), "edit", where=("layer 0", "value")),
    fault("crop wrong in layer 2 only", "crop", Cache, "crop", crop_one_layer_wrong, "edit", where=("layer 2", "key")),
    fault("window cropped without its past", "crop", DynamicSlidingWindowLayer, "crop", crop_window_silently, "edit",
          model="gemma3_text"),
    fault("state not rolled back, silently", "crop", LinearAttentionCacheLayerMixin, "crop", nothing, "edit",
          model="mamba2"),
    fault("static crop does nothing", "static", StaticLayer, "crop", nothing, "edit", "static"),
    fault("reorder does nothing", "batch", *REORDER, nothing, "batch", where=("layer 0",)),
    fault("reorder of keys only", "batch", *REORDER, reorder_keys_only, "batch", where=("layer 0", "value")),
    fault("reorder twice", "batch", *REORDER, reorder_twice, "batch"),
    fault("reorder of other rows", "batch", *REORDER, reorder_other, "batch", where=("layer 0",)),
    fault("reorder of half the layers", "batch", Cache, "reorder_cache", reorder_half, "batch", where=("layer 2",)),
    fault("reorder of a state does nothing", "batch", LinearAttentionCacheLayerMixin, "reorder_cache", nothing,
          "batch", model="mamba2"),
    fault("wrong rows selected", "batch", DynamicLayer, "batch_select_indices", select_next, "batch"),
    fault("rows repeated in the wrong order", "batch", DynamicLayer, "batch_repeat_interleave", repeat_whole, "batch"),
    stored("rows swapped when stored", row_swapped, "batch", "padding", kind="batch", where=("layer 0",)),
    fault("static write one place early", "static", StaticLayer, "update", written_early, "static"),
    fault("static reset does nothing", "static", StaticLayer, "reset", nothing, "reuse", "static"),
    fault("live counter read again", "static", LlamaDecoderLayer, "forward", read_late, "static"),
    fault("reset does nothing", "reuse", DynamicLayer, "reset", nothing, "reuse"),
    fault("reset of a state does nothing", "reuse", LinearAttentionCacheLayerMixin, "reset", nothing, "reuse",
          model="mamba2"),
    fault("branches are one cache", "sharing", DynamicCache, "__deepcopy__", branch_is_the_same, "batch"),
    fault("static branches share tensors", "sharing", StaticLayer, "__deepcopy__", branch_shares_tensors, "batch",
          "static"),
    fault("last token kept on the module", "state on the module", LlamaDecoderLayer, "forward", shifted, "batch",
          "reuse"),
    fault("another prompt's stored prefix", "sharing", LlamaAttention, "forward", by_length, "reuse"),
    fault("shared layers read a stale donor", "sharing", Gemma3nTextAttention, "forward", stale_donor, "steps",
          model="gemma3n_text"),
    fault("state not carried into a chunk", "recurrent", Cache, "get_recurrent_state", state_forgotten, "steps",
          model="mamba2", also=((Mamba2Mixer, "forward", tells_length),)),
    fault("convolution state one off", "recurrent", LinearAttentionLayer, "update_conv_state", convolution_shifted,
          "steps", model="mamba2", where=("layer 0",)),
    fault("short prompt padded on the right", "recurrent", LinearAttentionLayer, "update_conv_state",
          partial(convolution_shifted, right=True), "steps", model="mamba2", where=("layer 0",)),
    fault("state clamped in the cached path", "recurrent", LinearAttentionLayer, "update_recurrent_state", clamped,
          "steps", model="mamba2"),
    fault("stored rotary part not rotated", "latent", modeling_deepseek_v3, "apply_rotary_pos_emb_interleave",
          unrotated, "steps", model="deepseek_v3", where=("layer 0",)),
    stored("latent of the last token one step old", key_one_old, layer=1, kind="latent", model="deepseek_v3",
           where=("layer 1",)),
    fault("one expert a token in short calls", "experts", MixtralTopKRouter, "forward",
          partial(capacity, short_calls_only=True), "steps", model="mixtral"),
    fault("experts with room by the length of the call", "experts", MixtralTopKRouter, "forward",
          partial(capacity, short_calls_only=False), "power", "steps", model="mixtral",
          verdicts=("not comparable", "DEFECT")),
    fault("generate is one position late", "generate", LlamaForCausalLM, "prepare_inputs_for_generation",
          prepared(generated_one_late), "generate"),
    fault("generate forgets the padding", "generate", LlamaForCausalLM, "prepare_inputs_for_generation",
          prepared(lambda inputs: inputs.update(attention_mask=None)), "generate"),
)  # fmt: skip
