"""Decoders whose layers choose among experts, and latent attention."""

from __future__ import annotations

from collections.abc import Callable

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.pure.config_dense import alternating, decoder, depth, full, repeat, sliding_everywhere, stack
from kvtally.pure.config_fields import Fields


def mixtral(f: Fields) -> Decoder:
    """Mixtral: experts of `intermediate_size` in every layer; windows as in Mistral."""
    return stack(f, sliding_everywhere(f), repeat(f, experts(f, "intermediate_size")))


def gpt_oss(f: Fields) -> Decoder:
    """gpt-oss: experts of `intermediate_size`; every second layer sees everything, the others slide."""
    return stack(f, alternating(f, every=2), repeat(f, experts(f, "intermediate_size")))


def qwen3_moe(f: Fields) -> Decoder:
    """Qwen3 MoE: experts in every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`."""
    layers = depth(f)
    step = f.integer("decoder_sparse_step")
    dense_only = f.integers("mlp_only_layers", least=0, most=layers - 1) or ()
    sparse = [(index + 1) % step == 0 and index not in dense_only for index in range(layers)]
    if f.integer("num_experts", least=0) == 0:
        sparse = [False] * layers
    dense = None if all(sparse) else Mlp(width=f.integer("intermediate_size"))
    chosen = experts(f, "moe_intermediate_size") if any(sparse) else None
    note = "no layer has this MLP"
    f.set_aside(*(["intermediate_size"] if dense is None else []), note=note)
    f.set_aside(*(["moe_intermediate_size", "num_experts_per_tok"] if chosen is None else []), note=note)
    return stack(f, _qwen3_moe_windows(f), tuple(m for s in sparse if (m := chosen if s else dense)))


def deepseek_v3(f: Fields) -> Decoder:
    """DeepSeek-V3: latent attention; experts after the first `first_k_dense_replace` layers."""
    layers = depth(f)
    dense_first = f.integer("first_k_dense_replace", least=0)
    if dense_first > layers:
        both = f"{f.said('first_k_dense_replace')} and {f.said('num_hidden_layers')}"
        raise InputError(f"{both}, expected at most as many dense layers as layers")
    step = f.integer("moe_layer_freq", default=1)
    full(f)
    sparse = [index >= dense_first and index % step == 0 for index in range(layers)]
    mixer = latent_attention(f)
    dense = Layer(mixer=mixer, mlp=Mlp(width=f.integer("intermediate_size")))
    width = f.integer("moe_intermediate_size")
    chosen = Layer(mixer=mixer, mlp=experts(f, "moe_intermediate_size", shared=width * _shared_experts(f)))
    f.set_aside("n_group", "topk_group", note="limits which experts are chosen, not how many")
    f.set_aside("num_nextn_predict_layers", note="draft layers, not counted")
    return decoder(f, tuple(chosen if s else dense for s in sparse))


def latent_attention(f: Fields) -> LatentAttention:
    """Latent attention; `head_dim` and `num_key_value_heads` of such configs are not the cache's."""
    heads = f.integer("num_attention_heads")
    rope = f.integer("qk_rope_head_dim", least=0)
    nope = f.integer("qk_nope_head_dim")
    f.agrees("num_key_value_heads", heads, "all heads share the latent, and each expands its own K and V")
    f.agrees("head_dim", rope, "the head_dim of latent attention is qk_rope_head_dim")
    f.agrees("qk_head_dim", nope + rope, "qk_nope_head_dim + qk_rope_head_dim")
    return LatentAttention(
        num_heads=heads,
        kv_lora_rank=f.integer("kv_lora_rank"),
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        v_head_dim=f.integer("v_head_dim"),
        q_lora_rank=f.optional("q_lora_rank"),
    )


def experts(f: Fields, width: str, *, shared: int = 0) -> Experts:
    """Experts as wide as the field `width` says, and `shared` width that is always on."""
    number, chosen = f.integer("num_experts"), f.integer("num_experts_per_tok")
    if chosen > number:
        both = f"{f.said('num_experts_per_tok')} and {f.said('num_experts')}"
        raise InputError(f"{both}, expected at most as many experts a token as there are")
    return Experts(num_experts=number, per_token=chosen, width=f.integer(width), shared=shared)


def _shared_experts(f: Fields) -> int:
    return f.optional("n_shared_experts", least=0) or 0


def _qwen3_moe_windows(f: Fields) -> tuple[int | None, ...]:
    if f.flag("use_sliding_window"):
        if f.has("max_window_layers"):
            raise InputError(
                "`use_sliding_window` is true and `max_window_layers` is given, expected one of them: releases of "
                "transformers differ in which layers slide then",
                hint="remove `max_window_layers` if every layer slides",
            )
        return sliding_everywhere(f)
    f.set_aside("sliding_window", "max_window_layers", note="use_sliding_window is false")
    return full(f)


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "mixtral": mixtral,
    "qwen3_moe": qwen3_moe,
    "gpt_oss": gpt_oss,
    "deepseek_v3": deepseek_v3,
}
