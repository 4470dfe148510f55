"""Decoders whose layers choose among experts, and how their configs say which layers and how wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import (
    alternating,
    attention,
    depth,
    full,
    per_layer,
    repeat,
    routing,
    sliding_everywhere,
    stack,
)
from kvtally.pure.config_fields import CLASS_DEFAULT, DRAFT, LIMITS, Fields
from kvtally.pure.config_recurrent import further

Layout = Callable[[Fields], tuple[Mlp | Experts, ...]]  # the MLP of each layer
Windows = Callable[[Fields], tuple[int | None, ...]]

MOE = "moe_intermediate_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """Which fields of a config say how wide experts are, how many there are, and how many are chosen.

    What is always on is as wide as the field `shared` says, or as the field `count` says how many
    experts are shared; `gate` is a gate of one unit on it.
    """

    width: str = MOE
    number: str = "num_experts"
    chosen: str = "num_experts_per_tok"
    shared: str = ""
    count: str = ""
    gate: int = 0


USUAL = Spelled()
LOCAL = Spelled(width="intermediate_size", number="num_local_experts")
FEW = replace(LOCAL, shared="shared_intermediate_size")
ROUTED = Spelled(number="n_routed_experts", count="n_shared_experts")
SHARED = Spelled(count="num_shared_experts")
WIDE_SHARED = Spelled(shared="shared_expert_intermediate_size")


def experts(f: Fields, own: Spelled = USUAL) -> Experts:
    """Experts of the sizes that these fields say."""
    (many, picked), wide = routing(f, own.number, own.chosen), f.integer(own.width)
    always = (f.optional(own.shared, least=0) or 0) if own.shared and f.knows(own.shared) else 0
    if own.count:
        always = wide * (f.optional(own.count, least=0) or 0)
    f.set_aside("n_group", "topk_group", note=LIMITS)
    f.set_aside("num_mtp_layers", "num_nextn_predict_layers", "num_mtp_modules", "use_mtp", note=DRAFT)
    f.set_aside("mtp_transformer_layers", "mtp_layer_types", "mtp_mlp_layer_types", note=DRAFT)
    f.set_aside("moe_routed_scaling_factor", "enable_moe_fp32_combine", note="how experts are weighted")
    return Experts(num_experts=many, per_token=picked, width=wide, shared=always, shared_gate=own.gate if always else 0)


# Layouts: which layers choose among experts


def everywhere(own: Spelled = USUAL) -> Layout:
    """Experts in every layer."""
    return lambda f: repeat(f, experts(f, own))


def after(first: str, default: int | None = None, own: Spelled = USUAL) -> Layout:
    """Experts after as many dense layers as the field `first` says, unless `mlp_layer_types` lists them."""

    def layout(f: Fields) -> tuple[Mlp | Experts, ...]:
        listed = sparse_as_listed(f)
        if listed is not None:
            f.set_aside(first, note="mlp_layer_types says which layers are dense")
            return mixed(f, listed, own)
        dense = f.integer(first, least=0, default=default)
        if dense > depth(f):
            both = f"{f.said(first)} and {f.said('num_hidden_layers')}"
            raise InputError(f"{both}, expected at most as many dense layers as layers")
        return mixed(f, [index >= dense for index in range(depth(f))], own)

    return layout


def behind(dense: int, own: Spelled = USUAL) -> Layout:
    """Experts behind `dense` dense layers, a number that its class fixes, unless `mlp_layer_types` lists them."""

    def layout(f: Fields) -> tuple[Mlp | Experts, ...]:
        sparse = sparse_as_listed(f)
        if sparse is None:
            f.derive("mlp_layer_types", f"dense {dense} times, then sparse", CLASS_DEFAULT)
            sparse = [index >= dense for index in range(depth(f))]
        return mixed(f, sparse, own)

    return layout


def stepped(own: Spelled = USUAL, *, dense: tuple[int, ...] = ()) -> Layout:
    """Experts in every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`, by default `dense`."""

    def layout(f: Fields) -> tuple[Mlp | Experts, ...]:
        layers, step = depth(f), f.integer("decoder_sparse_step")
        listed = f.integers("mlp_only_layers", least=0, most=layers - 1)
        plain = dense if listed is None else listed
        sparse = [(index + 1) % step == 0 and index not in plain for index in range(layers)]
        if f.integer("num_experts", least=0) == 0:
            sparse = [False] * layers
        return mixed(f, sparse, own)

    return layout


def mixed(f: Fields, sparse: Sequence[bool], own: Spelled = USUAL) -> tuple[Mlp | Experts, ...]:
    """Experts where `sparse`, else a dense MLP of `intermediate_size`; what no layer has is not read."""
    plain = None if all(sparse) else Mlp(width=f.integer("intermediate_size"))
    chosen = experts(f, own) if any(sparse) else None
    note = "no layer has this MLP"
    f.set_aside(*(["intermediate_size"] if plain is None else []), note=note)
    if chosen is None:
        said = (own.width, own.number, own.chosen, own.shared, own.count)
        f.set_aside(*(name for name in said if name), note=note)
    return tuple(mlp for s in sparse if (mlp := chosen if s else plain))


def sparse_as_listed(f: Fields) -> list[bool] | None:
    """Whether each layer chooses among experts, as `mlp_layer_types` lists it, or None."""
    kinds = per_layer(f, "mlp_layer_types", ("dense", "sparse"))
    return None if kinds is None else [kind == "sparse" for kind in kinds]


# Decoders


def mixture(layout: Layout, windows: Windows = full, *, gate: bool = False) -> Callable[[Fields], Decoder]:
    """A reader of decoders with this layout and these windows; `gate`: a matrix gates what attention gives."""

    def rule(f: Fields) -> Decoder:
        mixer = attention(f)
        beside = further((None, mixer.num_heads * mixer.head_dim)) if gate else ()
        return stack(f, windows(f), layout(f), mixer=mixer, beside=beside)

    return rule


def gpt_oss(f: Fields) -> tuple[int | None, ...]:
    """gpt-oss: every second layer sees everything, the others slide."""
    return alternating(f, every=2)


def all_or_none(f: Fields) -> tuple[int | None, ...]:
    """No layer slides, or all of them where `use_sliding_window` is true; refused beside `max_window_layers`."""
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


def softmax(f: Fields) -> tuple[int | None, ...]:
    """MiniMax-M2: attention in every layer; `attn_type_list`, where it is left over from MiniMax-01, must say so."""
    f.agrees("attn_type_list", [1] * depth(f), "1 is attention, and its class has nothing else")
    return full(f)


def phimoe(f: Fields) -> tuple[Mlp | Experts, ...]:
    """Phi-3.5-MoE: two experts a token, whatever else a config may say: the router picks one after the other."""
    f.agrees("num_experts_per_tok", 2, "its router always chooses two")
    return repeat(f, experts(f, LOCAL))


def ernie(f: Fields) -> tuple[Mlp | Experts, ...]:
    """ERNIE 4.5: experts in every `moe_layer_interval`-th layer from a first to a last one."""
    layers, step = depth(f), f.integer("moe_layer_interval")
    first, last = f.integer("moe_layer_start_index", least=0), f.integer("moe_layer_end_index", least=-1)
    last = layers - 1 if last == -1 else last
    sparse = [(index + 1) % step == 0 and first <= index <= last for index in range(layers)]
    f.set_aside("moe_norm_min", note="a floor of the shares, not a size")
    return mixed(f, sparse, Spelled(number="moe_num_experts", chosen="moe_k", count="moe_num_shared_experts"))


def hunyuan(f: Fields) -> tuple[Mlp | Experts, ...]:
    """Hunyuan: experts and a shared MLP of one width; `moe_topk` may be a list, which every layer reads."""
    layers, many, width = depth(f), f.integer("num_experts"), f.integer("intermediate_size")
    chosen = f.each("moe_topk", layers)
    if max(chosen) > many:
        raise InputError(f"{f.said('moe_topk')} and {f.said('num_experts')}, expected at most as many as there are")
    return tuple(Experts(num_experts=many, per_token=own, width=width, shared=width) for own in chosen)


def dbrx(f: Fields) -> Decoder:
    """DBRX: sizes of attention and experts in objects of their own."""
    own, ffn = f.part("attn_config"), f.part("ffn_config")
    heads, hidden = f.integer("num_attention_heads"), f.integer("hidden_size")
    kv = own.integer("kv_n_heads", default=1)
    if hidden % heads or heads % kv:
        both = f"{f.said('hidden_size')}, {f.said('num_attention_heads')} and {own.said('kv_n_heads')}"
        raise InputError(f"{both}, expected whole numbers for each head and KV head")
    mixer = Attention(num_heads=heads, num_kv_heads=kv, head_dim=hidden // heads)
    f.agrees("num_key_value_heads", kv, "attn_config.kv_n_heads")
    chosen = Experts(
        num_experts=ffn.integer("moe_num_experts", default=4),
        per_token=ffn.integer("moe_top_k", default=1),
        width=ffn.integer("ffn_hidden_size", default=3584),
    )
    own.set_aside("clip_qkv", note="clips values, no size")
    ffn.agrees("hidden_size", hidden, "d_model")
    ffn.set_aside("moe_loss_weight", "moe_jitter_eps", "moe_normalize_expert_weights", "ffn_act_fn", note="no size")
    ffn.set_aside("hidden_size", note="d_model")
    return stack(f, full(f), repeat(f, chosen), mixer=mixer)


def jetmoe(f: Fields) -> Decoder:
    """JetMoE: each of the chosen experts of the attention has query and output projections for every KV head."""
    kv, chosen = f.integer("num_key_value_heads"), f.integer("num_experts_per_tok")
    mixer = Attention(num_heads=kv * chosen, num_kv_heads=kv, head_dim=f.integer("head_dim"))
    f.agrees("num_attention_heads", kv * chosen, "num_key_value_heads * num_experts_per_tok")
    mlp = experts(f, LOCAL)
    router = Recurrent(matrices=((Term.router, None, mlp.num_experts),))
    return stack(f, full(f), repeat(f, mlp), mixer=mixer, beside=(router,))


AS_WIDE_AS_AN_MLP = Spelled(width="intermediate_size")
ARIA = Spelled(width="intermediate_size", number="moe_num_experts", chosen="moe_topk", count="moe_num_shared_experts")

FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "mixtral": mixture(everywhere(AS_WIDE_AS_AN_MLP), sliding_everywhere),
    "gpt_oss": mixture(everywhere(AS_WIDE_AS_AN_MLP), gpt_oss),
    "qwen3_moe": mixture(stepped(), all_or_none),
    "qwen3_vl_moe_text": mixture(stepped()),
    **dict.fromkeys(("olmoe", "flex_olmo"), mixture(everywhere(AS_WIDE_AS_AN_MLP))),
    "granitemoe": mixture(everywhere(LOCAL)),
    "granitemoeshared": mixture(everywhere(FEW)),
    "phimoe": mixture(phimoe, sliding_everywhere),
    "minimax_m2": mixture(everywhere(FEW), softmax),
    "aria_text": mixture(everywhere(ARIA)),
    "hunyuan_v1_moe": mixture(hunyuan),
    "ernie4_5_moe": mixture(ernie),
    "solar_open": mixture(everywhere(ROUTED)),
    **dict.fromkeys(("glm4_moe", "sarvam_moe"), mixture(after("first_k_dense_replace", 1, ROUTED))),
    "hy_v3": mixture(behind(1, SHARED)),
    "dbrx": dbrx,
    "jetmoe": jetmoe,
}
