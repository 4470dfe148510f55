"""Decoders whose code is not in transformers, read from their JSON alone."""

from __future__ import annotations

from collections.abc import Callable

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Mlp
from kvtally.pure.config_dense import decoder, depth, full, kv_heads, refuse_groups, repeat, stack, whole_head_dim
from kvtally.pure.config_fields import DRAFT, Fields
from kvtally.pure.config_recurrent import further
from kvtally.pure.config_window import FAMILIES as SLIDING_FAMILIES


def openelm(f: Fields) -> Decoder:
    """OpenELM: heads, KV heads and the width of the MLP (a multiple of `model_dim`) are lists by layer."""
    layers, hidden = depth(f), f.integer("hidden_size")
    heads, groups = f.each("num_query_heads", layers), f.each("num_kv_heads", layers)
    every, gated = f.integer("ffn_dim_divisor"), f.flag("ffn_with_glu")
    f.set_aside("num_gqa_groups", "qkv_multipliers", note="num_query_heads and num_kv_heads say it")
    widths = [_divisible(times * hidden, every) for times in _multipliers(f, layers)]
    made = []
    for index, (many, kv, width) in enumerate(zip(heads, groups, widths, strict=True)):
        if many % kv:
            raise InputError(
                f"`num_query_heads[{index}]` is {many} and `num_kv_heads[{index}]` is {kv}, expected groups"
            )
        mixer = Attention(num_heads=many, num_kv_heads=kv, head_dim=f.integer("head_dim"))
        made.append(Layer(mixer=mixer, mlp=Mlp(width=width, gated=gated)))
    return decoder(f, tuple(made))


def _multipliers(f: Fields, layers: int) -> list[float]:
    """The width of each layer's MLP by `model_dim`; two numbers are the first and the last, rounded between."""
    given = f.numbers("ffn_multipliers")
    if len(given) == 1:
        return given * layers
    if len(given) == 2 and layers > 2:
        step = (given[1] - given[0]) / (layers - 1)
        return [round(given[0] + step * index, 2) for index in range(layers)]
    if len(given) != layers:
        raise InputError(f"`ffn_multipliers` has {len(given):,} entries, expected one for each of {layers:,} layers")
    return given


def _divisible(value: float, by: int) -> int:
    """`value` rounded to a multiple of `by`, not down by more than a tenth."""
    rounded = max(by, int(value + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * value else rounded


def nemotron_nas(f: Fields) -> Decoder:
    """DeciLM of Nemotron-NAS: `block_configs` says of each layer whether attention or MLP is there, and its size."""
    layers, hidden, heads = depth(f), f.integer("hidden_size"), f.integer("num_attention_heads")
    width, blocks = whole_head_dim(f), f.parts("block_configs")
    f.set_aside("num_key_value_heads", "intermediate_size", note="block_configs says it for each layer")
    if len(blocks) != layers:
        raise InputError(f"`block_configs` has {len(blocks):,} entries and {f.said('num_hidden_layers')}")
    made = []
    for block in blocks:
        own, ffn = block.part("attention"), block.part("ffn")
        mixer, instead = None, []
        if own.flag("replace_with_linear"):
            instead.append((None, None))
        elif not own.flag("no_op"):
            group = own.integer("n_heads_in_group", most=heads)
            if heads % group:
                raise InputError(f"{own.said('n_heads_in_group')} and {f.said('num_attention_heads')}, expected groups")
            window = own.optional("window_length") if own.has("window_length") else None
            own.agrees("num_sink_tokens", None, "sink tokens are not read")
            mixer = Attention(num_heads=heads, num_kv_heads=heads // group, head_dim=width, window=window)
        if mixer is None:
            own.set_aside("n_heads_in_group", note="no attention here")
        own.set_aside(
            "unshifted_sink", "use_prefill_window_in_sink_attention", note="of sink tokens, and there are none"
        )
        own.agrees("sparsify", None, "sparse weights are not read")
        mlp = None
        if ffn.flag("replace_with_linear"):
            instead.append((None, None))
        elif not ffn.flag("no_op"):
            mlp = Mlp(width=_up_to(int(2 * ffn.number("ffn_mult") * hidden / 3), 256))
        if mlp is None:
            ffn.set_aside("ffn_mult", note="no MLP here")
        made.append(Layer(mixer=mixer, mlp=mlp, beside=further(*instead)))
    return decoder(f, tuple(made))


def _up_to(value: int, by: int) -> int:
    """`value` rounded up to a multiple of `by`."""
    return -(-value // by) * by


def deci(f: Fields) -> Decoder:
    """DeciLM 6B and 7B: as Llama, the number of KV heads is a list by layer."""
    layers, heads, width = depth(f), f.integer("num_attention_heads"), whole_head_dim(f)
    groups = f.each("num_key_value_heads_per_layer", layers)
    if any(heads % kv for kv in groups):
        refuse_groups(f, f.said("num_key_value_heads_per_layer"))
    f.set_aside("num_key_value_heads", note="num_key_value_heads_per_layer says it for each layer")
    mlp = Mlp(width=f.integer("intermediate_size"))
    mixers = [Attention(num_heads=heads, num_kv_heads=kv, head_dim=width) for kv in groups]
    return decoder(f, tuple(Layer(mixer=mixer, mlp=mlp) for mixer in mixers))


def mimo(f: Fields) -> Decoder:
    """MiMo 7B: as Qwen2, with draft layers that are not counted."""
    f.set_aside("num_nextn_predict_layers", note=DRAFT)
    return SLIDING_FAMILIES["qwen2"](f)


def chatglm(f: Fields) -> Decoder:
    """ChatGLM 2, 3 and GLM-4: `multi_query_group_num` KV heads where `multi_query_attention`, else MHA."""
    heads = f.integer("num_attention_heads")
    if f.flag("multi_query_attention"):
        kv = kv_heads(f, f, "multi_query_group_num")
    else:
        kv = heads
        f.set_aside("multi_query_group_num", note="one KV head for each head")
    mixer = Attention(num_heads=heads, num_kv_heads=kv, head_dim=f.integer("head_dim"))
    f.set_aside("apply_residual_connection_post_layernorm", "pre_seq_len", note="no size of a layer")
    return stack(f, full(f), repeat(f, Mlp(width=f.integer("ffn_hidden_size"))), mixer=mixer)


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "openelm": openelm,
    "nemotron-nas": nemotron_nas,
    "deci": deci,
    "mimo": mimo,
    "chatglm": chatglm,
}
