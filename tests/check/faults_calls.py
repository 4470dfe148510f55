"""Faults of positions, masks and windows: in what a call is given."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from transformers import Gemma3ForCausalLM, GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding
from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention

from check.planted import Fault, Patch, attention_of, call_of, padded, positions

STEPS = ("steps",)


# Positions


def restart(given: dict[str, Any], past: int, new: int) -> None:
    if past:
        given["position_ids"] = positions({"input_ids": given["input_ids"]}, 0, new)


def one_more(given: dict[str, Any], past: int, new: int) -> None:
    if past:
        given["position_ids"] = positions(given, past, new) + 1


def one_less(given: dict[str, Any], past: int, new: int) -> None:
    if past:
        given["position_ids"] = (positions(given, past, new) - 1).clamp(min=0)


def not_advanced(given: dict[str, Any], past: int, new: int) -> None:
    cache = given.get("cache")
    if cache is None:
        return
    if not past:
        cache.prefilled = new
    elif hasattr(cache, "prefilled"):
        given["position_ids"] = torch.full_like(positions(given, past, new), cache.prefilled)


def calls_counted(given: dict[str, Any], past: int, new: int) -> None:
    """The position advances by one a call, however many tokens the call has."""
    cache = given.get("cache")
    if cache is None:
        return
    cache.position = getattr(cache, "position", 0) if past else 0
    if past:
        given["position_ids"] = positions({"input_ids": given["input_ids"]}, cache.position, new)
    cache.position += 1 if past else new


def default_forgets(given: dict[str, Any], past: int, new: int) -> None:
    if past and given.get("position_ids") is None:
        restart(given, past, new)


def slots(given: dict[str, Any], past: int, new: int, *, least: int = 0) -> None:
    if past >= least and padded(given):
        given["position_ids"] = torch.arange(past, past + new).expand(given["input_ids"].shape[0], new)


def table_from_zero(forward: Any) -> Any:
    def call(self: Any, ids: Any, past: int = 0, position_ids: Any = None) -> Any:
        return forward(self, ids, 0, None if position_ids is None else position_ids - past)

    return call


def stale_rotation(forward: Any) -> Any:
    """Cosines and sines of the first call of one token, for every later one."""

    def call(self: Any, x: Any, position_ids: Any) -> Any:
        if position_ids.shape[-1] > 1 or position_ids.shape[0] > 1:
            return forward(self, x, position_ids)
        if not hasattr(self, "stale"):
            self.stale = forward(self, x, position_ids)
        return self.stale

    return call


# Masks


def drop_mask(given: dict[str, Any], past: int, _new: int, *, least: int = 0) -> None:
    if past >= least:
        given["attention_mask"] = None


def sees_future(_module: Any, given: dict[str, Any], past: int, new: int) -> None:
    if past and new > 1:
        given["attention_mask"] = torch.ones(1, 1, new, past + new, dtype=torch.bool)


def wrong_corner(_module: Any, given: dict[str, Any], past: int, new: int) -> None:
    if past and new > 1:
        given["attention_mask"] = torch.ones(1, 1, new, past + new, dtype=torch.bool).tril()


def blind_chunk(_module: Any, given: dict[str, Any], past: int, new: int) -> None:
    """A chunk sees only itself."""
    if past and new > 1:
        seen = torch.ones(1, 1, new, past + new, dtype=torch.bool).tril(past)
        seen[..., :past] = False
        given["attention_mask"] = seen


def not_causal(_module: Any, given: dict[str, Any], past: int, new: int) -> None:
    if given.get("cache") is None and new > 1:
        given["attention_mask"] = torch.ones(1, 1, new, new, dtype=torch.bool)


# Windows: a layer that keeps everything, and a mask that is one wider, or none


def keeps_all(update: Any) -> Any:
    def call(self: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        self.cumulative_length += key.shape[-2]
        return DynamicLayer.update(self, key, value)

    return call


def all_sizes(_sizes: Any) -> Any:
    return lambda self, new: (self.cumulative_length + new, 0)


def window_of(wider: int | None) -> Any:
    """In a call on a cache the sliding layers see `wider` more tokens than their window, or all of them."""

    def change(module: Any, given: dict[str, Any], past: int, new: int) -> None:
        if module.sliding_window is None or given.get("cache") is None:
            return
        seen = torch.ones(new, past + new, dtype=torch.bool).tril(past)
        extra = 0 if not past else wider
        if extra is not None:
            seen = seen.triu(past - (module.sliding_window + extra) + 1)
        given["attention_mask"] = seen[None, None]

    return change


def uncached_sees_all(module: Any, given: dict[str, Any], _past: int, new: int) -> None:
    if given.get("cache") is None and new > 1:
        given["attention_mask"] = torch.ones(1, 1, new, new, dtype=torch.bool).tril()


def narrower(init: Any) -> Any:
    def call(self: Any, sliding_window: int, **kwargs: Any) -> None:
        init(self, sliding_window - 1, **kwargs)

    return call


def chunk_forgets(update: Any) -> Any:
    """A call of several tokens on a window gets zeros for what was cached."""

    def call(self: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        keys, values = update(self, key, value, *args, **kwargs)
        new = key.shape[-2]
        if new == 1 or new == keys.shape[-2]:
            return keys, values
        keys, values = keys.clone(), values.clone()
        keys[:, :, :-new] = values[:, :, :-new] = 0
        return keys, values

    return call


def evicting(init: Any) -> Any:
    """A cache of full attention whose layers keep the last seven tokens only."""

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.layers = [DynamicSlidingWindowLayer(8) for _ in self.layers]

    return call


def call_fault(name: str, kind: str, model: str, change: Any, groups: tuple[str, ...] = STEPS, **more: Any) -> Fault:
    owners = {"llama": LlamaForCausalLM, "gpt2": GPT2LMHeadModel, "gemma3_text": Gemma3ForCausalLM}
    owner = owners.get(model, MistralForCausalLM)
    patches: tuple[Patch, ...] = ((owner, "forward", call_of(change)),)
    return Fault(name=name, kind=kind, model=model, groups=groups, patches=patches, **more)


def mask_fault(name: str, change: Any, groups: tuple[str, ...] = STEPS, **more: Any) -> Fault:
    patches: tuple[Patch, ...] = ((LlamaAttention, "forward", attention_of(change)),)
    return Fault(name=name, kind="masks", model="llama", groups=groups, patches=patches, **more)


def window_fault(name: str, wider: int | None) -> Fault:
    patches: tuple[Patch, ...] = (
        (Gemma3Attention, "forward", attention_of(window_of(wider))),
        (DynamicSlidingWindowLayer, "update", keeps_all),
        (DynamicSlidingWindowLayer, "get_mask_sizes", all_sizes),
    )
    return Fault(name=name, kind="windows", model="gemma3_text", groups=("window", "steps"), patches=patches)


SLIDING = DynamicSlidingWindowLayer
PADDING = ("padding",)
FAULTS: tuple[Fault, ...] = (
    call_fault(
        "positions restart at every cached call",
        "positions",
        "llama",
        restart,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "positions restart, learned table",
        "positions",
        "gpt2",
        restart,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "positions restart, with windows",
        "positions",
        "gemma3_text",
        restart,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "positions one too high after prefill",
        "positions",
        "llama",
        one_more,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "positions one too low after prefill",
        "positions",
        "gpt2",
        one_less,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "positions not advanced",
        "positions",
        "llama",
        not_advanced,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "positions advance by calls, not tokens",
        "positions",
        "llama",
        calls_counted,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault(
        "default positions ignore what is cached",
        "positions",
        "gpt2",
        default_forgets,
        where=("the key of layer 0", "its token at position"),
    ),
    call_fault("slot as position under padding", "positions", "gpt2", slots, PADDING),
    call_fault("slot as position in decode only", "positions", "llama", partial(slots, least=1), PADDING),
    Fault(
        name="learned positions start at zero again",
        kind="positions",
        model="bart",
        groups=STEPS,
        patches=((BartLearnedPositionalEmbedding, "forward", table_from_zero),),
        where=("the key of layer 0", "its token at position"),
    ),
    Fault(
        name="rotation of an earlier step kept on the module",
        kind="state on the module",
        model="llama",
        groups=STEPS,
        patches=((LlamaRotaryEmbedding, "forward", stale_rotation),),
    ),
    call_fault("padding mask dropped in decode", "masks", "llama", partial(drop_mask, least=1), PADDING),
    call_fault("padding ignored always", "masks", "llama", drop_mask, PADDING),
    call_fault("padding ignored always, learned table", "masks", "gpt2", drop_mask, PADDING),
    mask_fault("a chunk sees its own future", sees_future),
    mask_fault("causal mask in the wrong corner", wrong_corner),
    mask_fault("a chunk sees only itself", blind_chunk),
    mask_fault("the pass without a cache is not causal", not_causal, ("power",), verdicts=("not comparable",)),
    window_fault("window ignored in the cached path", None),
    window_fault("window one too wide in the cached path", 1),
    Fault(
        name="window one too narrow",
        kind="windows",
        model="mistral",
        groups=("window", "steps"),
        patches=((SLIDING, "__init__", narrower),),
    ),
    Fault(
        name="a long chunk loses the window before it",
        kind="windows",
        model="gemma3_text",
        groups=("window", "steps"),
        patches=((SLIDING, "update", chunk_forgets),),
    ),
    Fault(
        name="window dropped in the pass without a cache",
        kind="uncached",
        model="mistral",
        groups=("power", "window", "steps"),
        patches=((MistralAttention, "forward", attention_of(uncached_sees_all)),),
        where=("the odd one out",),
    ),
    Fault(
        name="the oldest entries silently evicted",
        kind="storage",
        model="llama",
        groups=("steps", "window"),
        patches=((DynamicCache, "__init__", evicting),),
    ),
)
