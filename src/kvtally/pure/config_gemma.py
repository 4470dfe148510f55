"""Gemma 3n and 4: layers that read an earlier layer's K and V, heads of two sizes, matrices beside every layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Experts, Mlp
from kvtally.pure.config_dense import FULL, SLIDING, attention, decoder, depth, kv_heads, layer_types, windows_of
from kvtally.pure.config_fields import CLASS_DEFAULT, HINT, MOST_LAYERS, Fields
from kvtally.pure.config_recurrent import further

# transformers leaves rows without logits out of the layers that share K and V, where `generate` asks for
# the last row only; every row is counted here, as in every other layer.


def gemma3n_text(f: Fields) -> Decoder:
    """Gemma 3n: four streams of hidden states (AltUp), a low-rank path (Laurel), inputs for each layer.

    Per layer and token besides attention and MLP: two routers and the coefficients of the streams,
    n*n*hidden to mix n streams, Laurel, and the gate and projection of the layer's own input.
    """
    layers, hidden = depth(f), f.integer("hidden_size")
    kinds = _kinds(f, 5)
    streams, rank = f.integer("altup_num_inputs"), f.integer("laurel_rank")
    own = f.integer("hidden_size_per_layer_input")
    streaming = (*((None, streams),) * 2, (streams, streams * streams), (streams, streams), (None, streams * streams))
    beside = further(*streaming, (None, rank), (rank, None), *_own_input(own))
    f.set_aside("vocab_size_per_layer_input", note="a table that is looked up")
    f.set_aside("activation_sparsity_pattern", note="which activations are set to zero, not which are computed")
    mlps = [Mlp(width=width) for width in f.each("intermediate_size", layers)]
    mixers = _mixers(f, kinds)
    made = _shared(f, kinds, [Layer(mixer=m, mlp=p, beside=beside) for m, p in zip(mixers, mlps, strict=True)])
    outside = ((hidden, layers * own), *((hidden, hidden),) * (2 * (streams - 1)))
    return decoder(f, made, outside=outside)


def gemma4_text(f: Fields) -> Decoder:
    """Gemma 4: full layers with heads of `global_head_dim`, experts beside a dense MLP, K that may also be V."""
    own = f.integer("hidden_size_per_layer_input", least=0)
    f.set_aside("vocab_size_per_layer_input", note="a table that is looked up")
    layers = depth(f)
    beside = further(*_own_input(own)) if own else ()
    return _gemma4(f, beside, ((f.integer("hidden_size"), layers * own),) if own else (), experts=_experts(f))


def gemma4_unified_text(f: Fields) -> Decoder:
    """Gemma 4 unified: as Gemma 4, without experts and inputs for each layer."""
    return _gemma4(f, (), (), experts=None)


def _gemma4(
    f: Fields, beside: tuple[object, ...], outside: tuple[tuple[int, int], ...], *, experts: Experts | None
) -> Decoder:
    both_ways = f.either("use_bidirectional_attention", (None, "vision", "all"))
    if both_ways == "all":
        raise InputError(f"{f.said('use_bidirectional_attention')}: tokens that see later ones have no cache")
    kinds = _kinds(f, 6)
    if kinds[-1] != FULL:
        kinds = (*kinds[:-1], FULL)  # the class makes the last layer full whatever the config says
    width, first = f.integer("intermediate_size"), _first_shared(f, kinds)
    wide = 2 if f.flag("use_double_wide_mlp") else 1
    mlps = [experts or Mlp(width=width * (wide if index >= first else 1)) for index in range(len(kinds))]
    mixers = _mixers(f, kinds, _global_heads(f, kinds))
    layers = [Layer(mixer=m, mlp=p, beside=beside) for m, p in zip(mixers, mlps, strict=True)]  # type: ignore[arg-type]
    return decoder(f, _shared(f, kinds, layers), outside=outside)


def _experts(f: Fields) -> Experts | None:
    """Experts, the dense MLP beside them being what is always on."""
    if not f.flag("enable_moe_block"):
        f.set_aside("num_experts", "top_k_experts", "moe_intermediate_size", note="enable_moe_block is false")
        return None
    if f.flag("use_double_wide_mlp"):
        raise InputError(f"{f.said('use_double_wide_mlp')} and {f.said('enable_moe_block')}, expected one of them")
    return Experts(
        num_experts=f.integer("num_experts"),
        per_token=f.integer("top_k_experts", most=f.integer("num_experts")),
        width=f.integer("moe_intermediate_size"),
        shared=f.integer("intermediate_size"),
    )


def _own_input(width: int) -> tuple[tuple[int | None, int | None], ...]:
    """The gate and the projection of a layer's own input."""
    return (None, width), (width, None)


def _kinds(f: Fields, every: int) -> tuple[str, ...]:
    kinds = layer_types(f)
    if kinds is None:
        f.derive("layer_types", f"{FULL} every {every}, else {SLIDING}", CLASS_DEFAULT)
        kinds = tuple(SLIDING if (index + 1) % every else FULL for index in range(depth(f)))
    return kinds


def _global_heads(f: Fields, kinds: Sequence[str]) -> list[dict[str, int]]:
    """For each layer the head_dim and KV heads that differ from the usual ones: those of full layers."""
    name = "num_global_key_value_heads"
    if f.has("per_layer_config"):
        f.agrees("global_head_dim", None, "per_layer_config says it")
        f.agrees(name, None, "per_layer_config says it")
        return [_own_heads(f, own) for own in f.by_layer("per_layer_config", len(kinds))]
    full = {"head_dim": f.integer("global_head_dim", default=512)}
    given = f.optional(name) if f.has(name) else None
    if given is not None and f.flag("attention_k_eq_v"):
        full["num_key_value_heads"] = kv_heads(f, f, name)
    elif given is not None:
        f.set_aside(name, note="attention_k_eq_v is false")
    return [full if kind == FULL else {} for kind in kinds]


def _own_heads(f: Fields, own: Fields) -> dict[str, int]:
    """The head_dim and KV heads that a layer says for itself."""
    said = {"head_dim": own.integer("head_dim")} if own.has("head_dim") else {}
    if own.has("num_key_value_heads"):
        said["num_key_value_heads"] = kv_heads(f, own, "num_key_value_heads")
    return said


def _mixers(f: Fields, kinds: tuple[str, ...], heads: Sequence[dict[str, int]] = ()) -> list[Attention]:
    usual, windows = attention(f), windows_of(f, kinds, f.optional("sliding_window"))
    keys = f.flag("attention_k_eq_v") if f.knows("attention_k_eq_v") else False
    return [
        replace(
            usual,
            num_kv_heads=own.get("num_key_value_heads", usual.num_kv_heads),
            head_dim=own.get("head_dim", usual.head_dim),
            window=window,
            k_is_v=keys and window is None,
        )
        for window, own in zip(windows, heads or [{}] * len(kinds), strict=True)
    ]


def _first_shared(f: Fields, kinds: Sequence[str]) -> int:
    """The index of the first layer without K and V of its own."""
    layers = len(kinds)
    shared = f.integer("num_kv_shared_layers", least=0, most=MOST_LAYERS)
    if shared >= layers:
        both = f"{f.said('num_kv_shared_layers')} and {f.said('num_hidden_layers')}"
        raise InputError(f"{both}, expected a layer with K and V of its own", hint=HINT)
    missing = set(kinds) - set(kinds[: layers - shared])
    if missing:
        raise InputError(f"{f.said('num_kv_shared_layers')}, and no layer before them is `{missing.pop()}`", hint=HINT)
    return layers - shared


def _shared(f: Fields, kinds: Sequence[str], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers, the last `num_kv_shared_layers` reading K and V of the last layer of their kind before those."""
    first = _first_shared(f, kinds)
    donor = {kind: index for index, kind in enumerate(kinds[:first])}
    return tuple(
        layer if index < first else replace(layer, reads=donor[kind])
        for index, (kind, layer) in enumerate(zip(kinds, layers, strict=True))
    )


def assistant(f: Fields) -> NoReturn:
    """The draft models of Gemma 4 attend to K and V that another model has cached."""
    raise InputError(
        f"`model_type` is `{f.model_type}`, whose layers read K and V from the cache of another model; "
        "expected a decoder with K and V of its own",
        hint="count the model it drafts for",
    )


def inside(name: str, rule: Callable[[Fields], Decoder]) -> Callable[[Fields], Decoder]:
    """A reader of the `text_config`, of model_type `name`, inside a larger config."""
    return lambda f: rule(f.nested("text_config", name))


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "gemma3n": inside("gemma3n_text", gemma3n_text),
    "gemma3n_text": gemma3n_text,
    "gemma4": inside("gemma4_text", gemma4_text),
    "gemma4_text": gemma4_text,
    "gemma4_unified": inside("gemma4_unified_text", gemma4_unified_text),
    "gemma4_unified_text": gemma4_unified_text,
    "gemma4_assistant": assistant,
    "gemma4_unified_assistant": assistant,
}
