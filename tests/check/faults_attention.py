"""Faults of attention that is not plain: biases, sinks, caps, chunks, indexers, cross attention, and what is read."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicIndexedLayer, DynamicLayer, EncoderDecoderCache
from transformers.models.bart.modeling_bart import BartAttention
from transformers.models.bloom.modeling_bloom import BloomAttention
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from check.planted import Fault, held


def bias_from_zero(compute: Any) -> Any:
    """The relative bias of a call on a cache is that of a query at the beginning."""
    return lambda self, query_length, key_length, **more: compute(
        self, query_length, key_length, **(more | {"past_seen_tokens": 0})
    )


def bias_dropped(forward: Any) -> Any:
    """No slope of ALiBi in a call of one token."""

    @wraps(forward)
    def call(self: Any, hidden_states: Any, residual: Any, alibi: Any, *args: Any, **given: Any) -> Any:
        alone = hidden_states.shape[1] == 1 and given.get("layer_past") is not None
        return forward(self, hidden_states, residual, alibi * 0 if alone else alibi, *args, **given)

    return call


def table_of_the_call(forward: Any) -> Any:
    """Learned positions of the tokens of a call, whatever is held, unless they are given."""

    @wraps(forward)
    def call(self: Any, attention_mask: Any, past: int = 0, position_ids: Any = None) -> Any:
        if position_ids is not None and past and position_ids.shape[1] == 1:
            position_ids = position_ids * 0
        return forward(self, attention_mask, past, position_ids)

    return call


def without(name: str, value: Any) -> Any:
    """The attribute `name` of an attention is `value` in calls on a cache that holds something."""

    def make(forward: Any) -> Any:
        @wraps(forward)
        def call(self: Any, *args: Any, **given: Any) -> Any:
            kept = getattr(self, name)
            faulty = held(given.get("cache"), self.layer_idx) > 0
            if faulty:
                self.__dict__[name] = kept * 0 + value if isinstance(kept, torch.Tensor) else value
            try:
                return forward(self, *args, **given)
            finally:
                self.__dict__.pop(name, None) if isinstance(kept, torch.Tensor) else setattr(self, name, kept)

        return call

    return make


def chunk_sees_more(forward: Any) -> Any:
    """In a call of one token a chunk is a window: the token sees what is held of the chunk before."""

    @wraps(forward)
    def call(self: Any, hidden_states: Any, *args: Any, **given: Any) -> Any:
        if self.use_rope and hidden_states.shape[1] == 1 and given.get("attention_mask") is not None:
            given["attention_mask"] = torch.ones_like(given["attention_mask"])
        return forward(self, hidden_states, *args, **given)

    return call


def temperature_from_zero(forward: Any) -> Any:
    """The scale of the queries is that of the first positions, whatever is held."""

    @wraps(forward)
    def call(self: Any, hidden_states: Any, *args: Any, **given: Any) -> Any:
        cache = given.get("cache")
        if cache is None or self.use_rope:
            return forward(self, hidden_states, *args, **given)
        layer = cache.layers[self.layer_idx]
        layer.get_seq_length = lambda: 0
        try:
            return forward(self, hidden_states, *args, **given)
        finally:
            del layer.get_seq_length

    return call


def indexer_one_old(update: Any) -> Any:
    """A token's key for the indexer is stored as that of the token before."""

    def call(self: Any, key: Any) -> Any:
        past = self.indexer_keys is not None and self.indexer_keys.numel() and key.shape[1] == 1
        return update(self, self.indexer_keys[:, -1:] if past else key)

    return call


def indexer_kept_whole(crop: Any) -> Any:
    def call(self: Any, n: int) -> None:
        kept = self.indexer_keys
        crop(self, n)
        self.indexer_keys = kept

    return call


def heads_turned(reorder: Any) -> Any:
    def call(self: Any, rows: Any) -> None:
        reorder(self, rows)
        self.keys = self.keys.flip(1)

    return call


def read_with_heads_turned(update: Any) -> Any:
    """What is stored is right; what a call of one token reads has its heads in another order."""

    def call(self: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        keys, values = update(self, key, value, *args, **kwargs)
        return (keys.flip(1) if key.shape[2] == 1 else keys), values

    return call


def cross_faded(forward: Any) -> Any:
    """What is stored of the encoder is halved by every call that reads it."""

    @wraps(forward)
    def call(self: Any, *args: Any, key_value_states: Any = None, cache: Any = None, **given: Any) -> Any:
        if key_value_states is not None and cache is not None and cache.is_updated.get(self.layer_idx):
            cache.cross_attention_cache.layers[self.layer_idx].keys.mul_(0.5)
        return forward(self, *args, key_value_states=key_value_states, cache=cache, **given)

    return call


def cross_thought_filled(reset: Any) -> Any:
    """A reset empties both caches and goes on saying that the encoder's part is there."""

    def call(self: Any) -> None:
        filled = dict(self.is_updated)
        reset(self)
        self.is_updated.update(filled)

    return call


def cross_in_order(_reorder: Any) -> Any:
    """A reorder of what the decoder said, and not of what it reads."""

    def call(self: Any, rows: Any) -> None:
        self.self_attention_cache.reorder_cache(rows)

    return call


def cross_of_the_text_before(_reset: Any) -> Any:
    """A reset empties the decoder's part, and goes on reading the text before."""

    def call(self: Any) -> None:
        self.self_attention_cache.reset()

    return call


def fault(name: str, kind: str, owner: Any, method: str, make: Any, *groups: str, model: str, **more: Any) -> Fault:
    return Fault(name=name, kind=kind, model=model, groups=groups, patches=((owner, method, make),), **more)


LLAMA4 = (Llama4TextAttention, "forward")
FAULTS: tuple[Fault, ...] = (
    fault("relative bias from zero in a cached call", "positions", T5Attention, "compute_bias", bias_from_zero, "steps",
          model="t5", where=("layer 1",)),
    fault("slopes of ALiBi dropped in decode", "positions", BloomAttention, "forward", bias_dropped, "steps",
          model="bloom", where=("layer 1",)),
    fault("learned position of a single token is the first", "positions", OPTLearnedPositionalEmbedding, "forward",
          table_of_the_call, "steps", model="opt", where=("the key of layer 0",)),
    fault("sinks dropped in the cached path", "masks", GptOssAttention, "forward", without("sinks", -1e4), "steps",
          model="gpt_oss", where=("layer 1",)),
    fault("cap of the scores dropped in the cached path", "masks", Gemma2Attention, "forward",
          without("attn_logit_softcapping", None), "steps", model="gemma2", where=("layer 1",)),
    fault("a chunk read as a window in decode", "windows", *LLAMA4, chunk_sees_more, "steps", "window", model="llama4",
          where=("layer 1",)),
    fault("query scale of the first positions in decode", "positions", *LLAMA4, temperature_from_zero, "steps",
          model="llama4"),
    fault("indexer key one step old", "latent", DynamicIndexedLayer, "update_indexer", indexer_one_old, "steps",
          model="glm_moe_dsa", where=("indexer_key of layer 0",)),
    fault("crop leaves the indexer's keys", "crop", DynamicIndexedLayer, "crop", indexer_kept_whole, "edit",
          model="glm_moe_dsa", where=("indexer_key", "layer 0")),
    fault("heads turned by a reorder", "batch", DynamicLayer, "reorder_cache", heads_turned, "batch", model="llama",
          where=("layer 0", "heads swapped")),
    fault("heads read in another order than stored", "storage", Cache, "update", read_with_heads_turned, "steps",
          model="llama", where=("layer 0 read",)),
    fault("the encoder's keys fade", "storage", BartAttention, "forward", cross_faded, "steps", model="bart",
          where=("the cross key of layer 0",)),
    fault("reset says that the encoder's part is there", "reuse", EncoderDecoderCache, "reset", cross_thought_filled,
          "reuse", model="bart"),
    fault("reorder leaves the encoder's part", "batch", EncoderDecoderCache, "reorder_cache", cross_in_order, "batch",
          model="bart", where=("the cross key of layer 0",)),
    fault("reset leaves the encoder's part", "reuse", EncoderDecoderCache, "reset", cross_of_the_text_before, "reuse",
          model="bart", where=("the cross key of layer 0",)),
)  # fmt: skip
