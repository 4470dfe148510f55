"""Decoders whose layers slide or see everything in turn, and choose among experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mlp import Experts, Mlp
from kvtally.pure.config_dense import (
    FULL,
    SLIDING,
    attention,
    decoder,
    depth,
    expect_each,
    layer_types,
    sliding_from,
    stack,
)
from kvtally.pure.config_experts import (
    FEW,
    ROUTED,
    SHARED,
    WIDE_SHARED,
    Spelled,
    after,
    behind,
    everywhere,
    experts,
    mixture,
    sparse_as_listed,
    stepped,
)
from kvtally.pure.config_fields import Fields
from kvtally.pure.config_recurrent import further
from kvtally.pure.config_window import by_pattern, exaone, first_of_four, in_turn, never_by_default

BEAM = in_turn(lambda i: bool((i + 1) % 6), f"{FULL} every 6 and last, else {SLIDING}", full_last=True)
FLINT = in_turn(lambda i: i >= 2 and i % 4 != 1, f"{FULL} at 0, 1, 5, 9 … and last, else {SLIDING}", full_last=True)
KOLIBRI = in_turn(lambda i: bool((i + 1) % 5), f"{FULL} every 5, else {SLIDING}")
MIMO = in_turn(lambda i: i > 0 and bool((i + 1) % 6), f"{FULL} first and every 6, else {SLIDING}")


def qwen2_moe(f: Fields) -> tuple[int | None, ...]:
    """Qwen2 MoE: once `use_sliding_window` is true, every second layer before `max_window_layers` slides."""
    kinds = layer_types(f)
    if not f.flag("use_sliding_window"):
        if SLIDING in (kinds or ()):
            raise InputError(f"{f.said('layer_types')} and {f.said('use_sliding_window')}, expected that they agree")
        f.set_aside("sliding_window", "max_window_layers", note="use_sliding_window is false")
        return (None,) * depth(f)
    last = f.integer("max_window_layers", least=0)
    rule = f"{SLIDING} at 0, 2, 4 … before max_window_layers, else {FULL}"
    return in_turn(lambda i: not i % 2 and i < last, rule)(f)


def cohere2_moe(f: Fields) -> Decoder:
    """Command A MoE: dense layers first, each stretch with a pattern of its own; experts as wide as the MLP."""
    layers = depth(f)
    dense = f.integer("first_k_dense_replace", least=0, most=layers) if f.has("first_k_dense_replace") else 0
    before, every = f.integer("prefix_dense_sliding_window_pattern"), f.integer("sliding_window_pattern")
    rule = f"{FULL} every {before} of the dense layers and every {every} of the others, else {SLIDING}"
    windows = in_turn(lambda i: bool((i + 1) % before if i < dense else (i - dense + 1) % every), rule)(f)
    listed = sparse_as_listed(f)
    sparse = [index >= dense for index in range(layers)] if listed is None else listed
    width = f.optional("prefix_dense_intermediate_size") or f.integer("intermediate_size")
    if not dense:
        f.set_aside("prefix_dense_sliding_window_pattern", "prefix_dense_intermediate_size", note="none is dense")
    chosen = experts(f, Spelled(width="intermediate_size", count="num_shared_experts"))
    f.set_aside("shared_expert_combination_strategy", "expert_selection_fn", note="how experts are weighted")
    return stack(f, windows, tuple(chosen if s else Mlp(width=width) for s in sparse))


def laguna(f: Fields) -> Decoder:
    """Laguna: a number of heads for each layer, an output gate a head (or as wide as the heads)."""
    layers, windows = depth(f), never_by_default(f)
    mlps = behind(1, WIDE_SHARED)(f)
    f.set_aside("moe_apply_router_weight_on_input", "moe_router_logit_softcapping", note="how experts are weighted")
    heads = f.integers("num_attention_heads_per_layer", least=1, most=10**6)
    if heads is None:
        heads = (f.integer("num_attention_heads"),) * layers
    expect_each(f, "num_attention_heads_per_layer", heads)
    mixer = attention(f)
    gate = 1 if _by_head(f) else mixer.head_dim
    made = [
        Layer(
            mixer=replace(mixer, num_heads=many, window=window),
            mlp=mlp,
            beside=further((None, many * gate)),
        )
        for many, window, mlp in zip(heads, windows, mlps, strict=True)
    ]
    return decoder(f, tuple(made))


def _by_head(f: Fields) -> bool:
    """Whether the gate of Laguna has one unit a head: `gating` true or `per-head`."""
    gating = f.either("gating", (True, False, "per-head", "per-element"))
    if gating is False:
        raise InputError(f"{f.said('gating')}, expected true, `per-head` or `per-element`: its class always has a gate")
    return gating in (True, "per-head")


def mimo_v2(f: Fields) -> Decoder:
    """MiMo-V2-Flash: sliding layers have twice the KV heads; values are narrower than keys.

    Files of its authors say the same in words of their own (`hybrid_layer_pattern`, `swa_...`), and a
    window that leaves the query itself out.
    """
    far = replace(attention(f), v_head_dim=f.integer("v_head_dim"))
    windows = MIMO(f)
    if f.has("sliding_window_size"):
        window = f.integer("sliding_window_size") + 1
        f.set_aside("sliding_window", note="sliding_window_size says it, the query itself left out")
        windows = tuple(window if w is not None else None for w in windows)
    f.agrees("hybrid_layer_pattern", [int(w is not None) for w in windows], "which layers slide")
    own = Spelled(number="n_routed_experts", count="n_shared_experts" if f.has("n_shared_experts") else "")
    mlps = behind(1, own)(f)
    f.agrees("moe_layer_freq", [int(isinstance(mlp, Experts)) for mlp in mlps], "which layers choose among experts")
    kv = f.derive("swa_num_key_value_heads", 2 * far.num_kv_heads, "2 * num_key_value_heads")
    sizes = {"num_attention_heads": far.num_heads, "num_key_value_heads": kv, "head_dim": far.head_dim}
    for name, size in (*sizes.items(), ("v_head_dim", far.value_dim)):
        f.agrees(f"swa_{name}", size, "its class makes sliding layers so")
    near = replace(far, num_kv_heads=kv)
    pairs = zip(windows, mlps, strict=True)
    return decoder(f, tuple(Layer(mixer=far if w is None else replace(near, window=w), mlp=mlp) for w, mlp in pairs))


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "afmoe": mixture(after("num_dense_layers", own=SHARED), by_pattern("global_attn_every_n_layers"), gate=True),
    "beam": mixture(behind(3), BEAM, gate=True),
    "cohere2_moe": cohere2_moe,
    "dots1": mixture(after("first_k_dense_replace", 0, ROUTED), sliding_from),
    "exaone_moe": mixture(after("first_k_dense_replace", 1, SHARED), exaone),
    "flint": mixture(stepped(WIDE_SHARED, dense=(0, 1)), FLINT),
    "granitemoe_swa": mixture(everywhere(FEW), first_of_four),
    "kolibri1": mixture(everywhere(WIDE_SHARED), KOLIBRI),
    "laguna": laguna,
    "mellum": mixture(behind(0), never_by_default),
    "mimo_v2_flash": mimo_v2,
    "qwen2_moe": mixture(stepped(replace(WIDE_SHARED, gate=1)), qwen2_moe),
}
