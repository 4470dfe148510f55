"""Decoders with short convolutions: LFM2 and LFM3, ZAYA, Inkling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import FULL, SLIDING, attention, decoder, depth, mlps
from kvtally.pure.config_fields import CLASS_DEFAULT, DRAFT, Fields
from kvtally.pure.config_recurrent import (
    CONV,
    HYBRID,
    chosen_experts,
    dense_then_sparse,
    further,
    kinds,
    ruled_kinds,
    short_conv,
)

HYBRID_SLIDING = "hybrid_sliding"
HYBRIDS = (HYBRID, HYBRID_SLIDING)
Sizes = tuple[int | None, int | None]


def lfm2(f: Fields) -> Decoder:
    """LFM2: gated short convolutions, and attention in the layers that are listed."""
    attending = f.integers("full_attn_idxs", least=0, most=depth(f) - 1)
    rule = tuple(FULL if attending is None or index in attending else CONV for index in range(depth(f)))
    source = "full_attn_idxs" if f.has("full_attn_idxs") else CLASS_DEFAULT
    return _lfm(f, ruled_kinds(f, (FULL, CONV), rule, source), (_lfm2_mlp(f),) * depth(f))


def lfm2_moe(f: Fields) -> Decoder:
    """LFM2 MoE: the same, with experts after the first `num_dense_layers`."""
    listed = kinds(f, (FULL, CONV))
    if listed is None:
        raise InputError(f"`layer_types` is missing, and `{f.model_type}` has no default for it")
    dense = f.integer("num_dense_layers", least=0)
    f.set_aside("use_expert_bias", note="no product")
    chosen = chosen_experts(f, "num_experts", "moe_intermediate_size")
    return _lfm(f, listed, tuple(m if i < dense else chosen for i, m in enumerate(mlps(f))))


def _lfm(f: Fields, listed: tuple[str, ...], of_mlp: tuple[Mlp | Experts, ...]) -> Decoder:
    hidden = f.integer("hidden_size")
    for name in ("block_dim", "conv_dim", "conv_dim_out"):
        f.agrees(name, hidden, "as wide as the hidden state")
    f.agrees("num_heads", f.integer("num_attention_heads"), "num_attention_heads under another name")
    mixers: dict[str, Mixer] = {CONV: short_conv(f)}
    if CONV not in listed:
        f.set_aside("conv_L_cache", note="no layer has a convolution")
    if FULL in listed:
        mixers[FULL] = attention(f)
    return decoder(f, tuple(Layer(mixer=mixers[kind], mlp=mlp) for kind, mlp in zip(listed, of_mlp, strict=True)))


def _lfm2_mlp(f: Fields) -> Mlp:
    """The MLP, two thirds as wide as the file says and rounded up, where it is adjusted."""
    width = f.integer("block_ff_dim") if f.has("block_ff_dim") else f.integer("intermediate_size")
    f.set_aside("intermediate_size", note="block_ff_dim goes first") if f.has("block_ff_dim") else None
    f.agrees("block_use_swiglu", True, "the MLP has a gate")
    unused = ("block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_xavier_init")
    f.set_aside(*unused, "conv_use_xavier_init", note="an initial value, or a norm")
    if not f.flag("block_auto_adjust_ff_dim"):
        f.set_aside("block_multiple_of", "block_ffn_dim_multiplier", note="block_auto_adjust_ff_dim is false")
        return Mlp(width=width)
    width = int(f.number("block_ffn_dim_multiplier") * int(2 * width / 3))
    step = f.integer("block_multiple_of")
    return Mlp(width=f.derive("intermediate_size", -(-width // step) * step, "block_auto_adjust_ff_dim"))


def lfm3(f: Fields) -> Decoder:
    """LFM3: short convolutions, sliding and full attention in turns of four, a gate for each head."""
    turns = {0: SLIDING, 2: FULL}
    rule = tuple(turns.get(index % 4, CONV) if index else CONV for index in range(depth(f)))
    listed = ruled_kinds(f, (FULL, CONV, SLIDING), rule, CLASS_DEFAULT)
    full = attention(f)
    gate = further((None, full.num_heads)) if f.flag("use_attention_gate") else ()
    parts = {CONV: Layer(mixer=short_conv(f)), FULL: Layer(mixer=full, beside=gate)}
    if SLIDING in listed:
        parts[SLIDING] = Layer(mixer=attention(f, window=f.integer("sliding_window")), beside=gate)
    f.set_aside("sliding_window", note="no layer slides") if SLIDING not in listed else None
    return decoder(f, tuple(replace(parts[kind], mlp=mlp) for kind, mlp in zip(listed, mlps(f), strict=True)))


def zaya(f: Fields) -> Decoder:
    """ZAYA: queries and keys through two convolutions, half of each value from the token before; a router MLP.

    One of the router's classes stands for no expert at all; it is counted as an expert like the others.
    """
    window = f.optional("sliding_window")
    listed = ruled_kinds(f, HYBRIDS, (HYBRID,) * depth(f), CLASS_DEFAULT)
    if HYBRID_SLIDING in listed and window is None:
        raise InputError(f"{f.said('sliding_window')} and a layer is `{HYBRID_SLIDING}`, expected a window")
    f.set_aside(*(() if HYBRID_SLIDING in listed else ("sliding_window",)), note="no layer slides")
    full = attention(f)
    kv = full.num_kv_heads * full.head_dim
    channels = full.num_heads * full.head_dim + kv
    beside = (
        Recurrent(conv_channels=channels, conv_kernel=f.integer("cca_time0"), shifted=kv // 2),
        Recurrent(conv_channels=channels, conv_kernel=f.integer("cca_time1"), conv_group=full.head_dim),
    )
    f.set_aside("lm_head_bias", note="no product")
    inner = f.integer("router_hidden_size")
    chosen = chosen_experts(f, "num_experts", "moe_intermediate_size")
    mlp = replace(chosen, num_experts=chosen.num_experts + 1, router=(inner,) * 3)
    parts = {
        HYBRID: Layer(mixer=full, beside=beside, mlp=mlp),
        HYBRID_SLIDING: Layer(mixer=replace(full, window=window), beside=beside, mlp=mlp),
    }
    return decoder(f, tuple(parts[kind] for kind in listed))


def inkling_text(f: Fields) -> Decoder:
    """Inkling: a convolution behind K, V, attention and MLP; learned biases by distance; experts."""
    rule = tuple(HYBRID_SLIDING if local else HYBRID for local in _local(f))
    source = "local_layer_ids" if f.has("local_layer_ids") else CLASS_DEFAULT
    listed = ruled_kinds(f, HYBRIDS, rule, source)
    hidden, taps = f.integer("hidden_size"), f.integer("conv_kernel_size")
    parts = {}
    for kind in HYBRIDS:
        mixer, extent = inkling_attention(f, kind)
        channels = 2 * mixer.num_kv_heads * mixer.head_dim + 2 * hidden
        bias = mixer.num_heads * f.integer("d_rel")
        beside = inkling_beside(taps, channels, (None, bias), (bias, extent))
        parts[kind] = Layer(mixer=mixer, beside=(beside,))
    f.set_aside("num_mtp_layers", "mtp_hidden_states_first", "mtp_local_layer_ids", note=DRAFT)
    f.set_aside("number_of_conv_states", "shared_expert_sink", "rms_norm_eps_moe_gate", note="follows from the rest")
    f.set_aside("unpadded_vocab_size", note="rows of logits are made for the padded vocabulary, then cut")
    pairs = zip(listed, _inkling_mlps(f), strict=True)
    return decoder(f, tuple(replace(parts[kind], mlp=mlp) for kind, mlp in pairs))


def inkling_beside(taps: int, channels: int, *matrices: Sizes) -> Recurrent:
    """The convolutions of a layer, `channels` in all, and its further matrices."""
    return Recurrent(
        matrices=tuple((Term.extra_proj, inputs, outputs) for inputs, outputs in matrices),
        conv_channels=channels,
        conv_kernel=taps,
    )


def inkling_attention(f: Fields, kind: str) -> tuple[Attention, int]:
    """Attention of one kind of layer, and how far its biases by distance reach."""
    sliding = kind == HYBRID_SLIDING
    window = f.integer("sliding_window_size")
    own = "swa_" if sliding else ""
    heads, kv = f.integer(f"{own}num_attention_heads"), f.integer(f"{own}num_key_value_heads")
    if heads % kv:
        both = f"{f.said(f'{own}num_attention_heads')} and {f.said(f'{own}num_key_value_heads')}"
        raise InputError(f"{both}, expected a whole number of query heads for each KV head")
    mixer = Attention(
        num_heads=heads, num_kv_heads=kv, head_dim=f.integer(f"{own}head_dim"), window=window if sliding else None
    )
    return mixer, window if sliding else f.integer("rel_extent")


def _local(f: Fields) -> tuple[bool, ...]:
    local = f.integers("local_layer_ids", least=0, most=depth(f) - 1)
    return tuple((index + 1) % 6 != 0 if local is None else index in local for index in range(depth(f)))


def _inkling_mlps(f: Fields) -> tuple[Mlp | Experts, ...]:
    """Experts with gates on the shared ones; a file with `dense_intermediate_size` has the widths swapped."""
    swapped = f.has("dense_intermediate_size")
    dense = Mlp(width=f.integer("dense_intermediate_size" if swapped else "intermediate_size"))
    width = "intermediate_size" if swapped else "moe_intermediate_size"
    f.set_aside("moe_intermediate_size", note="intermediate_size is theirs") if swapped else None
    shared = f.integer("n_shared_experts", least=0)
    wide = shared * f.integer(width)
    chosen = chosen_experts(f, "n_routed_experts", width, shared=wide, shared_gate=shared)
    first = f.integer("dense_mlp_idx", least=0, default=0)
    return dense_then_sparse(f, first, dense, chosen)


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "inkling_text": inkling_text,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "lfm3": lfm3,
    "zaya": zaya,
}
