"""Decoders of linear attention: gated delta nets, Kimi delta attention, lightning attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import FULL, SLIDING, attention, decoder, depth, mlps
from kvtally.pure.config_experts import WIDE_SHARED, stepped
from kvtally.pure.config_fields import CLASS_DEFAULT, DRAFT, HINT, LIMITS, Fields
from kvtally.pure.config_recurrent import (
    LINEAR,
    chosen_experts,
    delta_attention,
    delta_net,
    dense_then_sparse,
    every,
    further,
    gated_delta,
    kinds,
    ruled_kinds,
)

INDEXED = "indexed_attention"
IN_LATENT = "all heads share the latent"
OLD_INDEXED = {"full_attention": INDEXED, "qwen_sparse_attention": INDEXED}


def qwen3_next(f: Fields) -> Decoder:
    """Qwen3-Next: three gated delta nets, then gated attention; experts with a gated shared one."""
    return _qwen(f, stepped(replace(WIDE_SHARED, gate=1))(f))


def qwen3_5_text(f: Fields) -> Decoder:
    """Qwen3.5: three gated delta nets, then gated attention; a dense MLP."""
    return _qwen(f, mlps(f))


def qwen3_5_moe_text(f: Fields) -> Decoder:
    """Qwen3.5 MoE: three gated delta nets, then gated attention; experts with a gated shared one."""
    return _qwen(f, (_qwen_experts(f),) * depth(f))


def qwen3_5(f: Fields) -> Decoder:
    """Qwen3.5 with a vision tower: its `text_config`."""
    return qwen3_5_text(f.nested("text_config", "qwen3_5_text"))


def qwen3_5_moe(f: Fields) -> Decoder:
    """Qwen3.5 MoE with a vision tower: its `text_config`."""
    return qwen3_5_moe_text(f.nested("text_config", "qwen3_5_moe_text"))


def _qwen(f: Fields, of_mlp: tuple[Mlp | Experts, ...]) -> Decoder:
    f.agrees("attn_output_gate", True, "q_proj makes the gate of the output as well")
    f.set_aside("mamba_ssm_dtype", note="a dtype")
    f.set_aside("mtp_num_hidden_layers", note=DRAFT)
    mixers: dict[str, Mixer] = {LINEAR: gated_delta(f), FULL: replace(attention(f), gated=True)}
    listed = every(f, "full_attention_interval", 4)
    pairs = zip(listed, of_mlp, strict=True)
    return decoder(f, tuple(Layer(mixer=mixers[kind], mlp=mlp) for kind, mlp in pairs))


def _qwen_experts(f: Fields) -> Experts:
    shared = f.integer("shared_expert_intermediate_size", least=0)
    return chosen_experts(f, "num_experts", "moe_intermediate_size", shared=shared, shared_gate=1 if shared else 0)


def lara_mini(f: Fields) -> Decoder:
    """Lara mini: gated delta nets, sliding and full attention in turns of five; experts with a shared one."""
    turns = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    rule = tuple(turns[index % len(turns)] for index in range(depth(f)))
    listed = ruled_kinds(f, (LINEAR, FULL, SLIDING), rule, CLASS_DEFAULT)
    mixers: dict[str, Mixer] = {
        LINEAR: gated_delta(f),
        SLIDING: attention(f, window=f.integer("sliding_window")),
        FULL: attention(f),
    }
    shared = f.integer("shared_expert_intermediate_size")
    mlp = chosen_experts(f, "num_experts", "moe_intermediate_size", shared=shared)
    return decoder(f, tuple(Layer(mixer=mixers[kind], mlp=mlp) for kind in listed))


def olmo_hybrid(f: Fields) -> Decoder:
    """OLMo hybrid: three gated delta nets, then attention; sizes that are null follow from the heads."""
    layers, heads = depth(f), f.integer("num_attention_heads")
    rule = [FULL if index % 4 == 3 else LINEAR for index in range(layers)]
    if FULL not in rule:
        rule[-1] = FULL
    listed = ruled_kinds(f, (LINEAR, FULL), tuple(rule), CLASS_DEFAULT)
    key_heads = f.optional("linear_num_key_heads") or f.derive("linear_num_key_heads", heads, "num_attention_heads")
    value_heads = f.optional("linear_num_value_heads") or heads
    hidden = f.integer("hidden_size")
    key_dim = f.optional("linear_key_head_dim") or f.derive(
        "linear_key_head_dim", 3 * hidden // (4 * key_heads), "0.75 * hidden_size / linear_num_key_heads"
    )
    value_dim = f.optional("linear_value_head_dim") or 2 * key_dim
    if value_heads % key_heads:
        raise InputError(f"{f.said('linear_num_key_heads')}, expected a divisor of {value_heads} value heads")
    f.set_aside("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", note="an initial value")
    f.set_aside("linear_dt_init_floor", "linear_allow_neg_eigval", note="an initial value, or a sign")
    mixer = delta_net(
        heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        keys=key_heads * key_dim,
        kernel=f.integer("linear_conv_kernel_dim"),
        fused=False,
    )
    mixers: dict[str, Mixer] = {LINEAR: mixer, FULL: attention(f)}
    return decoder(f, tuple(Layer(mixer=mixers[kind], mlp=mlp) for kind, mlp in zip(listed, mlps(f), strict=True)))


def kimi_linear(f: Fields) -> Decoder:
    """Kimi-Linear and Kimi-K3: Kimi delta attention, latent attention in the layers listed 1-based."""
    part = f.part("linear_attn_config")
    heads, head_dim, kernel = (
        part.integer(own) if part.has(own) else f.integer(common, default=default)
        for own, common, default in (
            ("num_heads", "linear_num_heads", 32),
            ("head_dim", "linear_head_dim", 128),
            ("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
        )
    )
    wide = heads * head_dim
    full_rank = part.has("use_full_rank_gate") and part.flag("use_full_rank_gate")
    output_gate = [(None, wide)] if full_rank else [(None, head_dim), (head_dim, wide)]
    linear = delta_attention(heads, head_dim, kernel, (None, head_dim), (head_dim, wide), (None, heads), *output_gate)
    latent = _latent(f)
    f.set_aside("head_dim", note=IN_LATENT)
    gate = (None, latent.num_heads * latent.v_head_dim)
    gated = f.has("mla_use_output_gate") and f.flag("mla_use_output_gate")
    f.set_aside("attn_res_block_size", note="residuals that attend to layers, not to tokens: not counted")
    f.agrees("moe_layer_freq", 1, "every layer after the dense ones has experts")
    f.set_aside("num_nextn_predict_layers", note=DRAFT)
    f.set_aside("moe_router_activation_func", "latent_moe_use_norm", note="no product")
    f.set_aside("activation_situ_beta", "activation_situ_linear_beta", note="no product")
    parts = {
        LINEAR: Layer(mixer=linear),
        FULL: Layer(mixer=latent, beside=further(*([gate] if gated else []))),
    }
    first = f.integer("first_k_dense_replace", least=0, default=1)
    of_mlp = dense_then_sparse(f, first, mlps(f)[0], _kimi_experts(f))
    pairs = zip(_kimi_kinds(f, part), of_mlp, strict=True)
    return decoder(f, tuple(replace(parts[kind], mlp=mlp) for kind, mlp in pairs))


def kimi_k3(f: Fields) -> Decoder:
    """Kimi-K3: its `text_config`, a Kimi-Linear of more parts."""
    return kimi_linear(f.nested("text_config", "kimi_linear"))


def _kimi_experts(f: Fields) -> Experts:
    """Experts, in a latent where `routed_expert_hidden_size` is given, and shared ones of the same width."""
    f.set_aside("n_group", "topk_group", "moe_renormalize", "use_grouped_topk", note=LIMITS)
    width = f.integer("moe_intermediate_size")
    chosen = chosen_experts(f, "num_experts", "moe_intermediate_size", shared=f.integer("n_shared_experts") * width)
    latent = f.integer("routed_expert_hidden_size") if f.has("routed_expert_hidden_size") else None
    return replace(chosen, latent=latent)


def _kimi_kinds(f: Fields, part: Fields) -> tuple[str, ...]:
    """The kind of each layer: as listed; else by the two lists that count from 1; else every fourth from 0."""
    layers = depth(f)
    listed = kinds(f, (LINEAR, FULL))
    full = part.integers("full_attn_layers", least=1, most=layers) if part.has("full_attn_layers") else None
    delta = part.integers("kda_layers", least=1, most=layers) if part.has("kda_layers") else None
    if listed is not None:
        return listed
    if full is None or delta is None:
        rule = tuple(FULL if index and index % 4 == 0 else LINEAR for index in range(layers))
        return ruled_kinds(f, (LINEAR, FULL), rule, CLASS_DEFAULT)
    if sorted((*full, *delta)) != list(range(1, layers + 1)):
        raise InputError(
            f"`linear_attn_config.full_attn_layers` and `kda_layers` list {len(full)} and {len(delta)} layers, "
            f"expected each of 1 to {layers} once: they count from 1"
        )
    return tuple(FULL if index + 1 in full else LINEAR for index in range(layers))


def bailing_hybrid(f: Fields) -> Decoder:
    """Ring/Ling hybrid: Kimi delta attention, latent attention with a gate a head at every sixth layer."""
    heads, head_dim = f.integer("num_attention_heads"), f.integer("head_dim")
    f.agrees("linear_num_heads", heads, "num_attention_heads")
    if f.has("linear_head_dim"):
        f.set_aside("head_dim", note="linear_head_dim says it")
        head_dim = f.integer("linear_head_dim")
    kernel = f.integer("short_conv_kernel_size")
    f.agrees("linear_conv_kernel_dim", kernel, "short_conv_kernel_size")
    f.set_aside("mtp_loss_scaling_factor", "num_mtp_layers", note=DRAFT)
    f.set_aside("kda_safe_gate", "kda_lower_bound", note="no product")
    wide = heads * head_dim
    linear = delta_attention(heads, head_dim, kernel, (None, wide), (None, heads), (None, wide))
    step = f.integer("layer_group_size")
    rule = tuple(FULL if (index + 1) % step == 0 else LINEAR for index in range(depth(f)))
    listed = ruled_kinds(f, (LINEAR, FULL), rule, "layer_group_size")
    parts = {LINEAR: Layer(mixer=linear), FULL: Layer(mixer=_latent(f), beside=further((None, heads)))}
    first = f.integer("first_k_dense_replace", least=0)
    of_mlp = dense_then_sparse(f, first, mlps(f)[0], _kimi_experts(f))
    return decoder(f, tuple(replace(parts[kind], mlp=mlp) for kind, mlp in zip(listed, of_mlp, strict=True)))


def _latent(f: Fields) -> LatentAttention:
    """Latent attention; num_key_value_heads and qk_head_dim of such files are not the cache's."""
    f.set_aside("num_key_value_heads", "qk_head_dim", note=IN_LATENT)
    f.set_aside("mla_use_nope", note="positions are not rotated; the part is as wide, and cached")
    return LatentAttention(
        num_heads=f.integer("num_attention_heads"),
        kv_lora_rank=f.integer("kv_lora_rank"),
        qk_rope_head_dim=f.integer("qk_rope_head_dim", least=0),
        qk_nope_head_dim=f.integer("qk_nope_head_dim"),
        v_head_dim=f.integer("v_head_dim"),
        q_lora_rank=f.optional("q_lora_rank"),
    )


def minimax(f: Fields) -> Decoder:
    """MiniMax: full attention and lightning attention in turns; experts."""
    rule = tuple(FULL if index % 2 == 0 else LINEAR for index in range(depth(f)))
    return _minimax(f, ruled_kinds(f, (LINEAR, FULL), rule, CLASS_DEFAULT))


def minimax_text_01(f: Fields) -> Decoder:
    """MiniMax-Text-01 as first published: `attn_type_list` has 0 for lightning attention, 1 for full."""
    types = f.integers("attn_type_list", least=0, most=1)
    if types is None or len(types) != depth(f):
        found = "missing" if types is None else f"a list of {len(types)}"
        raise InputError(f"`attn_type_list` is {found}, expected 0 or 1 for each of {depth(f)} layers", hint=HINT)
    shared = f.integer("shared_intermediate_size", least=0, default=0)
    if shared:
        raise InputError(f"{f.said('shared_intermediate_size')}, expected 0: no shared expert is known", hint=HINT)
    f.set_aside("shared_moe_mode", note="no shared expert")
    return _minimax(f, tuple(FULL if kind else LINEAR for kind in types))


def _minimax(f: Fields, listed: tuple[str, ...]) -> Decoder:
    full = attention(f)
    wide = full.num_heads * full.head_dim
    f.agrees("sliding_window", None, "no layer slides")
    f.set_aside("block_size", note="how a scan is cut, not what it computes")
    scales = ("full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor")
    f.set_aside(*scales, "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", note="a scale")
    linear = _lightning(full, wide)
    mlp = chosen_experts(f, "num_local_experts", "intermediate_size")
    mixers: dict[str, Mixer] = {FULL: full, LINEAR: linear}
    return decoder(f, tuple(Layer(mixer=mixers[kind], mlp=mlp) for kind in listed))


def _lightning(full: Attention, wide: int) -> Recurrent:
    """Lightning attention (arXiv:2401.04658): a KV head for each head, a gate, a fixed decay."""
    return Recurrent(
        matrices=(
            (Term.q_proj, None, wide),
            (Term.k_proj, None, wide),
            (Term.v_proj, None, wide),
            (Term.extra_proj, None, wide),
            (Term.o_proj, wide, None),
        ),
        num_heads=full.num_heads,
        key_dim=full.head_dim,
        value_dim=full.head_dim,
    )


def qwen4_exp_text(f: Fields) -> Decoder:
    """Qwen4-Exp: three gated delta nets, then gated attention to blocks that an indexer chooses; residual streams.

    A query attends to the chosen blocks and to its own, which counts as one more of them.
    """
    streams, rank = f.integer("hc_count", least=2), f.integer("hc_lowrank")
    wide = streams * f.integer("hidden_size")
    mixing = ((wide, rank), (rank, wide))
    both = further(*(*mixing, (wide, streams)) * 2)
    ratio = f.integer("indexer_compress_ratio")
    budget = f.integer("indexer_budget")
    if budget % ratio:
        said = f"{f.said('indexer_budget')} and {f.said('indexer_compress_ratio')}"
        raise InputError(f"{said}, expected a whole number of blocks")
    f.agrees("indexer_kv_heads", 1, "all index heads share one key")
    indexer = Indexer(
        num_heads=f.integer("indexer_n_heads"),
        head_dim=f.integer("indexer_head_dim"),
        weighted=False,
        ratio=ratio,
        averaged=True,
    )
    if f.integers("ple_layer_ids", least=1, most=depth(f)):
        raise InputError(f"{f.said('ple_layer_ids')}, expected none: embeddings of n-grams are not known", hint=HINT)
    unused = ("ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base")
    f.set_aside(*unused, "split_ngram_parts", note="no layer has embeddings of n-grams")
    f.set_aside("number_of_conv_states", "make_ngram_vocab_size_divisible_by", note="follows from the rest")
    full = replace(attention(f), gated=True, top_k=budget // ratio + 1, block=ratio)
    listed = every(f, "full_attention_interval", 4, full=INDEXED, old=OLD_INDEXED)
    parts = {
        LINEAR: Layer(mixer=gated_delta(f), beside=both),
        INDEXED: Layer(mixer=full, beside=(indexer, *both)),
    }
    experts = _qwen_experts(f)
    sized = decoder(f, tuple(replace(parts[kind], mlp=experts) for kind in listed))
    return replace(sized, outside=mixing)


def qwen4_exp(f: Fields) -> Decoder:
    """Qwen4-Exp with a vision tower: its `text_config`."""
    return qwen4_exp_text(f.nested("text_config", "qwen4_exp_text"))


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "bailing_hybrid": bailing_hybrid,
    "kimi_k3": kimi_k3,
    "kimi_linear": kimi_linear,
    "lara_mini": lara_mini,
    "minimax": minimax,
    "minimax_text_01": minimax_text_01,
    "olmo_hybrid": olmo_hybrid,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
    "qwen3_5_moe_text": qwen3_5_moe_text,
    "qwen3_5_text": qwen3_5_text,
    "qwen3_next": qwen3_next,
    "qwen4_exp": qwen4_exp,
    "qwen4_exp_text": qwen4_exp_text,
}
