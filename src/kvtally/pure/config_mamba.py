"""Decoders of Mamba and Mamba-2 layers, alone and mixed with attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.config_dense import FULL, attention, decoder, depth, mlps
from kvtally.pure.config_fields import CLASS_DEFAULT, DRAFT, HINT, LIMITS, MOST_LAYERS, Fields
from kvtally.pure.config_recurrent import (
    HYBRID,
    LINEAR,
    OLD_KINDS,
    SCAN,
    SCAN_FIELDS,
    chosen_experts,
    further,
    kinds,
    mamba1,
    mamba2,
    mamba2_of,
    ruled_kinds,
)

ATTENDING, SHARING = (LINEAR, FULL), (LINEAR, HYBRID)  # kinds of layers
NO_PRODUCT = "a bias, a norm or a dtype: no product"


def mamba(f: Fields) -> Decoder:
    """Mamba and Falcon-Mamba: recurrent layers alone, no MLP."""
    hidden = f.integer("hidden_size")
    inner = f.integer("expand") * hidden
    _only_recurrent(f)
    for name in ("intermediate_size", "d_inner"):
        f.agrees(name, inner, "expand * hidden_size")
    f.agrees("d_model", hidden, "the hidden size under another name")
    f.agrees("n_layer", depth(f), "num_hidden_layers under another name")
    f.set_aside(*SCAN_FIELDS, note=SCAN)
    f.set_aside("use_conv_bias", "ssm_cfg", note=NO_PRODUCT)
    mixer = mamba1(
        inner=inner,
        state=f.integer("state_size"),
        rank=_rank(f, "time_step_rank"),
        kernel=f.integer("conv_kernel"),
    )
    return decoder(f, (Layer(mixer=mixer),) * depth(f))


def mamba2_alone(f: Fields) -> Decoder:
    """Mamba-2: recurrent layers alone, no MLP."""
    heads, head_dim = f.integer("num_heads"), f.integer("head_dim")
    inner = f.integer("expand") * f.integer("hidden_size")
    if heads * head_dim != inner:
        both = f"{f.said('num_heads')} and {f.said('head_dim')}"
        raise InputError(f"{both}, expected {inner:,} channels in all: expand * hidden_size")
    _only_recurrent(f)
    f.set_aside(*SCAN_FIELDS, note=SCAN)
    f.set_aside("use_conv_bias", note=NO_PRODUCT)
    mixer = mamba2(
        heads=heads,
        head_dim=head_dim,
        groups=f.integer("n_groups"),
        state=f.integer("state_size"),
        kernel=f.integer("conv_kernel"),
    )
    return decoder(f, (Layer(mixer=mixer),) * depth(f))


def bamba(f: Fields) -> Decoder:
    """Bamba: attention in the layers that `attn_layer_indices` lists, Mamba-2 in the others."""
    attending = f.integers("attn_layer_indices", least=0, most=depth(f) - 1) or ()
    rule = tuple(FULL if index in attending else LINEAR for index in range(depth(f)))
    source = "attn_layer_indices" if f.has("attn_layer_indices") else CLASS_DEFAULT
    if f.has("attn_layer_indices"):
        f.agrees("layer_types", list(rule), "attn_layer_indices lists those that attend")
    return _mixed(f, ruled_kinds(f, ATTENDING, rule, source), _mamba2_expanded(f), mlps(f))


def falcon_h1(f: Fields) -> Decoder:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    f.agrees("layer_types", [HYBRID] * depth(f), "every layer has both")
    given = f.optional("mamba_d_ssm")
    f.set_aside("mamba_expand", note="mamba_d_ssm says how many channels there are") if given else None
    inner = given or f.integer("mamba_expand") * f.integer("hidden_size")
    f.set_aside("lm_head_multiplier", "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier", note=NO_PRODUCT)
    f.set_aside("mlp_multipliers", "attention_in_multiplier", "key_multiplier", note=NO_PRODUCT)
    layer = Layer(mixer=attention(f), beside=(mamba2_of(f, inner),), mlp=mlps(f)[0])
    return decoder(f, (layer,) * depth(f))


def granitemoehybrid(f: Fields) -> Decoder:
    """Granite 4: Mamba-2 or attention by `layer_types`; experts and a shared MLP, or that alone."""
    shared = f.integer("shared_intermediate_size")
    mlp: Mlp | Experts
    if f.integer("num_local_experts", least=0) == 0:
        f.set_aside("intermediate_size", "num_experts_per_tok", note="no layer has experts")
        mlp = Mlp(width=shared)
    else:
        mlp = chosen_experts(f, "num_local_experts", "intermediate_size", shared=shared)
    rule = (LINEAR,) * depth(f)
    return _mixed(f, ruled_kinds(f, ATTENDING, rule, CLASS_DEFAULT), _mamba2_expanded(f), (mlp,) * depth(f))


def jamba(f: Fields) -> Decoder:
    """Jamba: attention and experts each at a period and an offset, Mamba and a dense MLP elsewhere."""
    layers = range(depth(f))
    attending = _periodic(f, "attn_layer_period", "attn_layer_offset")
    sparse = _periodic(f, "expert_layer_period", "expert_layer_offset")
    dense = Mlp(width=f.integer("intermediate_size"))
    many = f.integer("num_experts") > 1
    experts = chosen_experts(f, "num_experts", "intermediate_size") if many and any(sparse) else dense
    f.set_aside("num_experts_per_tok", note="no layer has experts") if experts is dense else None
    f.set_aside(*SCAN_FIELDS, note=SCAN)
    f.set_aside("mamba_conv_bias", "mamba_proj_bias", note=NO_PRODUCT)
    mixer = mamba1(
        inner=f.integer("mamba_expand") * f.integer("hidden_size"),
        state=f.integer("mamba_d_state"),
        rank=_rank(f, "mamba_dt_rank"),
        kernel=f.integer("mamba_d_conv"),
    )
    rule = tuple(FULL if attending[index] else LINEAR for index in layers)
    follows = "it follows from periods and offsets"
    f.agrees("layer_types", list(rule), follows)
    f.agrees("layers_block_type", ["attention" if own else "mamba" for own in attending], follows)
    f.agrees("layers_num_experts", [f.integer("num_experts") if own else 1 for own in sparse], follows)
    chosen = tuple(experts if sparse[index] else dense for index in layers)
    return _mixed(f, ruled_kinds(f, ATTENDING, rule, "attn_layer_period"), mixer, chosen)


def nemotron_h(f: Fields) -> Decoder:
    """Nemotron-H: each layer is a Mamba-2 mixer, attention, an MLP or experts, and nothing besides."""
    listed = _nemotron_kinds(f)
    f.agrees("attention_head_dim", f.integer("head_dim"), "transformers reads `head_dim`")
    f.agrees("sliding_window", None, "no layer slides")
    f.set_aside("n_group", "topk_group", note=LIMITS)
    f.set_aside("num_nextn_predict_layers", "mtp_layers_block_type", note=DRAFT)
    f.set_aside("mtp_hybrid_override_pattern", note=DRAFT)
    f.set_aside(*SCAN_FIELDS, "moe_shared_expert_overlap", note=SCAN)
    f.set_aside("expand", "n_shared_experts", note="heads * head_dim and the shared width are given")
    f.set_aside("mamba_ssm_cache_dtype", "mamba_hidden_act", "use_conv_bias", "mamba_proj_bias", note=NO_PRODUCT)
    mixer = mamba2(
        heads=f.integer("mamba_num_heads"),
        head_dim=f.integer("mamba_head_dim"),
        groups=f.integer("n_groups"),
        state=f.integer("ssm_state_size"),
        kernel=f.integer("conv_kernel"),
    )
    parts = {
        LINEAR: Layer(mixer=mixer),
        FULL: Layer(mixer=attention(f)),
        "mlp": Layer(mlp=Mlp(width=f.integer("intermediate_size"), gated=False)),
    }
    if "moe" in listed:
        parts["moe"] = Layer(mlp=_nemotron_experts(f))
    return decoder(f, tuple(parts[kind] for kind in listed))


def _nemotron_kinds(f: Fields) -> tuple[str, ...]:
    """What each layer is: from its list, or from the pattern of one letter a layer; the list goes first."""
    letters = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
    known = tuple(letters.values())
    old = tuple(word for word, new in OLD_KINDS.items() if new in known)
    words = f.words("layer_types", (*known, *old))
    if words is not None:
        listed = tuple(OLD_KINDS.get(word, word) for word in words)
        f.set_aside("hybrid_override_pattern", note="layers_block_type lists the layers")
    elif f.has("hybrid_override_pattern"):
        pattern = f.word("hybrid_override_pattern")
        if wrong := next((c for c in pattern if c not in letters), None):
            said = f"`hybrid_override_pattern` has `{wrong}` at {pattern.index(wrong)}"
            raise InputError(f"{said}; known: " + ", ".join(f"`{c}`" for c in letters), hint=HINT)
        listed = tuple(letters[c] for c in pattern)
    else:
        listed = (LINEAR, "moe", FULL, "mlp")
        f.derive("layer_types", ", ".join(listed), CLASS_DEFAULT)
    if not 0 < len(listed) <= MOST_LAYERS:
        raise InputError(f"{len(listed):,} layers are listed, expected from 1 to {MOST_LAYERS:,}")
    f.agrees("num_hidden_layers", len(listed), "as many as are listed")
    return listed


def _nemotron_experts(f: Fields) -> Experts:
    shared = f.integer("moe_shared_expert_intermediate_size")
    chosen = chosen_experts(f, "n_routed_experts", "moe_intermediate_size", shared=shared, gated=False)
    return replace(chosen, latent=f.optional("moe_latent_size"))


def zamba(f: Fields) -> Decoder:
    """Zamba: Mamba in every layer; some also have the shared attention and MLP, and a matrix behind them."""
    hidden, layers = f.integer("hidden_size"), depth(f)
    heads = f.integer("num_attention_heads")
    kv = f.integer("num_key_value_heads")
    f.agrees("attention_hidden_size", 2 * hidden, "hidden state and embedding together")
    head_dim = f.optional("attention_head_dim") or f.derive("head_dim", 2 * hidden // heads, "2 * hidden_size / heads")
    inner, mamba_heads = f.integer("mamba_expand") * hidden, f.integer("n_mamba_heads")
    if inner % mamba_heads:
        raise InputError(f"{f.said('n_mamba_heads')}, expected a divisor of {inner:,}: mamba_expand * hidden_size")
    f.set_aside(*SCAN_FIELDS, note=SCAN)
    f.set_aside("hidden_mamba_act", "mamba_conv_bias", "mamba_proj_bias", note=NO_PRODUCT)
    mixer = mamba1(
        inner=inner,
        state=f.integer("mamba_d_state"),
        rank=_rank(f, "mamba_dt_rank"),
        kernel=f.integer("mamba_d_conv"),
    )
    period, offset = f.integer("attn_layer_period"), f.integer("attn_layer_offset", least=0)
    rule = (LINEAR, LINEAR, HYBRID, *(HYBRID if i % period == offset else LINEAR for i in range(layers - 3)))
    shared = Attention(num_heads=heads, num_kv_heads=kv, head_dim=head_dim, inputs=2 * hidden)
    hybrid = Layer(
        mixer=shared,
        beside=(mixer, *further((None, None))),
        mlp=Mlp(width=f.integer("intermediate_size")),
    )
    listed = ruled_kinds(f, SHARING, rule[:layers], "attn_layer_period", "attn_layer_offset")
    return decoder(f, tuple(hybrid if kind == HYBRID else Layer(mixer=mixer) for kind in listed))


def zamba2(f: Fields) -> Decoder:
    """Zamba2: Mamba-2 in every layer; some also have a shared attention and MLP, with adapters of their own."""
    hidden = f.integer("hidden_size")
    heads = f.integer("num_attention_heads")
    kv = f.optional("num_key_value_heads") or heads
    inner, mamba_heads = f.integer("mamba_expand") * hidden, f.integer("n_mamba_heads")
    if inner % mamba_heads or 2 * hidden % heads:
        both = f"{f.said('n_mamba_heads')} and {f.said('num_attention_heads')}"
        raise InputError(f"{both}, expected divisors of mamba_expand * hidden_size and of 2 * hidden_size")
    width = f.optional("intermediate_size") or f.derive("intermediate_size", 4 * hidden, "4 * hidden_size")
    f.agrees("mamba_headdim", inner // mamba_heads, "mamba_expand * hidden_size / n_mamba_heads")
    f.agrees("attention_hidden_size", 2 * hidden, "hidden state and embedding together")
    f.agrees("attention_head_dim", 2 * hidden // heads, "2 * hidden_size / num_attention_heads")
    f.set_aside(*SCAN_FIELDS, "num_mem_blocks", note="how many blocks take turns, not how large they are")
    f.set_aside("kv_channels", "num_query_groups", "hybrid_layer_ids", "use_conv_bias", note="not read by the model")
    mixer = mamba2(
        heads=mamba_heads,
        head_dim=inner // mamba_heads,
        groups=f.integer("mamba_ngroups"),
        state=f.integer("mamba_d_state"),
        kernel=f.integer("mamba_d_conv"),
    )
    rank = f.integer("adapter_rank")
    wide = 2 * hidden
    adapters: list[tuple[int | None, int | None]] = [(None, rank), (rank, 2 * width)]
    if f.flag("use_shared_attention_adapter"):
        adapters += [(wide, rank), (rank, wide)] * 3
    hybrid = Layer(
        mixer=Attention(num_heads=heads, num_kv_heads=kv, head_dim=wide // heads, inputs=wide),
        beside=(mixer, *further((None, None), *adapters)),
        mlp=Mlp(width=width),
    )
    listed = kinds(f, SHARING)
    if listed is None:
        listed = ruled_kinds(f, SHARING, _zamba2_rule(f), CLASS_DEFAULT)
    return decoder(f, tuple(hybrid if kind == HYBRID else Layer(mixer=mixer) for kind in listed))


def _zamba2_rule(f: Fields) -> tuple[str, ...]:
    """The layers of Zamba2 where the config does not list them: those of its 54."""
    rule = (LINEAR, *(*(LINEAR,) * 5, HYBRID) * 7, *(LINEAR,) * 4, HYBRID, *(LINEAR,) * 3, HYBRID, *(LINEAR,) * 2)
    if depth(f) != len(rule):
        said = f"{f.said('num_hidden_layers')} and `layers_block_type` is missing"
        raise InputError(f"{said}, expected a list of the layers where there are not {len(rule)}")
    return rule


def _mixed(f: Fields, listed: tuple[str, ...], mixer: Recurrent, of_mlp: tuple[Mlp | Experts, ...]) -> Decoder:
    """Attention or a recurrent mixer by the kind of each layer, and its MLP."""
    attending = attention(f) if FULL in listed else None
    unused = ("num_attention_heads", "num_key_value_heads", "head_dim", "attn_layer_indices")
    f.set_aside(*(() if attending else unused), note="no layer attends")
    pairs = zip(listed, of_mlp, strict=True)
    return decoder(f, tuple(Layer(mixer=attending if kind == FULL else mixer, mlp=mlp) for kind, mlp in pairs))


def _mamba2_expanded(f: Fields) -> Recurrent:
    return mamba2_of(f, f.integer("mamba_expand") * f.integer("hidden_size"))


def _only_recurrent(f: Fields) -> None:
    f.agrees("layer_types", [LINEAR] * depth(f), "every layer is recurrent")


def _rank(f: Fields, name: str) -> int:
    rank = f.integer_or("auto", name)
    return rank or f.derive(name, -(-f.integer("hidden_size") // 16), "hidden_size / 16, rounded up")


def _periodic(f: Fields, period: str, offset: str) -> tuple[bool, ...]:
    step, first = f.integer(period), f.integer(offset, least=0)
    if first >= step:
        raise InputError(f"{f.said(offset)} and {f.said(period)}, expected an offset within the period")
    return tuple(index % step == first for index in range(depth(f)))


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "falcon_mamba": mamba,
    "granitemoehybrid": granitemoehybrid,
    "jamba": jamba,
    "mamba": mamba,
    "mamba2": mamba2_alone,
    "nemotron_h": nemotron_h,
    "zamba": zamba,
    "zamba2": zamba2,
}
