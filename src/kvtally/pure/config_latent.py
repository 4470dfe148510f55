"""Decoders with latent attention: DeepSeek, Kimi-K2, GLM-5 and their kin, with and without an indexer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.config_dense import (
    FULL,
    SLIDING,
    decoder,
    depth,
    expect_each,
    expect_same,
    full,
    mlps,
    per_layer,
    routing,
)
from kvtally.pure.config_fields import DRAFT, LIMITS, MOST_LAYERS, Fields
from kvtally.pure.config_recurrent import further

Beside = tuple[Indexer | Recurrent, ...]

INDEXED = "indexed_attention"
DENSE, SPARSE = "dense", "sparse"

# Dense layers before the first with experts, where a config leaves it out and transformers fills it in.
DENSE_FIRST = {
    "deepseek_v2": 0, "sarvam_mla": 1, "axk1": 1, "axk2": 1, "deepseek_v32": 3, "glm_moe_dsa": 3,
    "dots3_note_text": 1,
}  # fmt: skip
# One dense layer unless `mlp_layer_types` says otherwise: no number of them is heard.
ALWAYS_ONE = ("glm4_moe_lite", "hy_v4")
EVERY_LAYER = (*ALWAYS_ONE, "deepseek_v32", "glm_moe_dsa")  # `moe_layer_freq` is not heard


def deepseek(f: Fields) -> Decoder:
    """DeepSeek-V2 and V3, R1, Kimi-K2, A.X-K1, Sarvam, GLM-4.7-Flash: latents, experts after dense layers."""
    full(f)
    mixer = latent_attention(f)
    return decoder(f, tuple(Layer(mixer=mixer, mlp=mlp) for mlp in sparse_mlps(f)))


def dense(f: Fields) -> Decoder:
    """MiniCPM3 and Youtu: latents, a dense MLP in every layer."""
    full(f)
    mixer = latent_attention(f)
    return decoder(f, tuple(Layer(mixer=mixer, mlp=mlp) for mlp in mlps(f)))


def indexed(f: Fields) -> Decoder:
    """DeepSeek-V3.2 and GLM-5: an indexer chooses `index_topk` latents a query, its own or an earlier layer's."""
    mixer, indexer = _indexed(f)
    kinds = indexer_types(f)
    return decoder(f, _layers(mixer, sparse_mlps(f), [(indexer,) if kind == "full" else () for kind in kinds]))


def axk2(f: Fields) -> Decoder:
    """A.X-K2: as DeepSeek-V3.2, the attention gated, and norms with a gate of low rank (before every expert layer too).

    The gate of a norm is two matrices, hidden_size by `gated_norm_rank` and back.
    """
    mixer, indexer = _indexed(f)
    rank = f.integer("gated_norm_rank", default=16)
    gate = ((None, rank), (rank, None))
    beside: list[Beside] = [(indexer, *further(*(gate * 2 if sparse else gate))) for sparse in sparse_layers(f)]
    return decoder(f, _layers(replace(mixer, gated=True), sparse_mlps(f), beside))


def hy_v4(f: Fields) -> Decoder:
    """Hunyuan V4: as GLM-5, the attention gated by gate_proj, and `hc_mult` streams of the hidden state.

    Each block takes weights of its streams from all of them (hc * hidden_size by 2 * hc, twice a layer);
    one more such matrix joins the streams before the output head.
    """
    mixer, indexer = _indexed(f)
    streams, hidden = f.integer("hc_mult", default=4), f.integer("hidden_size")
    gate = (None, mixer.num_heads * mixer.v_head_dim)
    extra = further(gate, *((streams * hidden, 2 * streams),) * 2)
    beside: list[Beside] = [(indexer, *extra) if kind == "full" else extra for kind in indexer_types(f)]
    layers = _layers(mixer, sparse_mlps(f), beside)
    return replace(decoder(f, layers), outside=((streams * hidden, streams),))


def longcat_flash(f: Fields) -> Decoder:
    """LongCat-Flash: two layers of latents and a dense MLP for each of `num_layers`, experts beside the first.

    The experts are written as ones whose shared part is that dense MLP. `zero_expert_num` of them do
    nothing; which tokens choose them depends on the text, so every choice is counted as one that works.
    """
    f.agrees("num_hidden_layers", 2 * f.integer("num_layers", most=MOST_LAYERS // 2), "twice num_layers")
    mixer, width = latent_attention(f), f.integer("intermediate_size")
    number = f.integer("num_local_experts") + (f.optional("zero_expert_num", least=0) or 0)
    first = Experts(
        num_experts=number,
        per_token=f.integer("num_experts_per_tok", most=number),
        width=f.integer("moe_intermediate_size"),
        shared=width,
    )
    pair = (Layer(mixer=mixer, mlp=first), Layer(mixer=mixer, mlp=Mlp(width=width)))
    return decoder(f, pair * f.integer("num_layers"))


def dots3_note_text(f: Fields) -> Decoder:
    """Dots3-Note: layers with an indexer, and sliding ones with latents of their own sizes; one gate a head.

    Sizes of single layers stand in `per_layer_config`, or those of all that slide in fields that begin with `swa_`.
    """
    kinds, own = _dots_kinds(f), f.by_layer("per_layer_config", depth(f))
    usual = replace(latent_attention(f), q_lora_rank=f.integer("q_lora_rank"))
    window = f.optional("sliding_window") or f.integer("sliding_window_size", default=512)
    shared = "moe_shared_expert_intermediate_size"
    width = f.integer(shared if f.has(shared) else "shared_experts_intermediate_size")
    indexer = _indexer(f, usual) if INDEXED in kinds else None
    top = f.integer("index_topk") if indexer else None
    if not indexer:
        f.set_aside("index_topk", "index_n_heads", "index_head_dim", note="no layer has an indexer")
    parts = sparse_mlps(f, width * f.integer("n_shared_experts"))
    sizes = {kind: _dots_sizes(f, slides=kind == SLIDING) for kind in dict.fromkeys(kinds)}
    layers = []
    for index, (kind, mlp) in enumerate(zip(kinds, parts, strict=True)):
        mixer = _dots_attention(sizes[kind], own[index], index)
        beside: Beside = further((None, mixer.num_heads))
        if kind == SLIDING:
            mixer = replace(mixer, window=window)
        if indexer and kind == INDEXED:
            mixer, beside = replace(mixer, top_k=top), (replace(indexer, q_lora_rank=mixer.q_lora_rank), *beside)
        layers.append(Layer(mixer=mixer, mlp=mlp, beside=beside))
    return decoder(f, tuple(layers))


def dots3_note(f: Fields) -> Decoder:
    """Dots3-Note with its towers: the `text_config`, or the same fields beside those of the towers."""
    text = "dots3_note_text"
    return dots3_note_text(f.nested("text_config", text) if f.has("text_config") else f.seen_as(text))


def kimi_k25(f: Fields) -> Decoder:
    """Kimi-K2.5, which also reads pictures: its `text_config`."""
    tower = ("use_unified_vision_chunk", "projection_hidden_size", "projection_layer_norm_eps")
    f.set_aside(*tower, note="of the vision tower")
    return deepseek(f.nested("text_config", "deepseek_v3", "kimi_k2"))


# Parts


def latent_attention(f: Fields) -> LatentAttention:
    """Latent attention; `head_dim` and `num_key_value_heads` of such configs are not the cache's."""
    heads = f.integer("num_attention_heads")
    rope = f.integer("qk_rope_head_dim", least=0)
    nope = f.integer("qk_nope_head_dim")
    rank = f.integer("kv_lora_rank")
    f.agrees("num_key_value_heads", heads, "all heads share the latent, and each expands its own K and V")
    for name in ("qk_head_dim", "q_head_dim"):
        f.agrees(name, nope + rope, "qk_nope_head_dim + qk_rope_head_dim")
    width = f.optional("v_head_dim") if f.model_type == "minicpm3" else f.integer("v_head_dim")
    if width is None:
        width = f.derive("v_head_dim", f.integer("hidden_size") // heads, "hidden_size / num_attention_heads")
    mixer = LatentAttention(
        num_heads=heads,
        kv_lora_rank=rank,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        v_head_dim=width,
        q_lora_rank=f.optional("q_lora_rank"),
    )
    _check_head_dim(f, mixer)
    return mixer


def sparse_mlps(f: Fields, shared: int | None = None) -> tuple[Mlp | Experts, ...]:
    """Experts in the sparse layers, a dense MLP of `intermediate_size` in the others.

    `shared` is the width that is always on beside the experts, None for `n_shared_experts` of theirs.
    """
    sparse = sparse_layers(f)
    plain = None if all(sparse) else Mlp(width=f.integer("intermediate_size"))
    chosen = routed(f, shared_width(f) if shared is None else shared) if any(sparse) else None
    unused = [] if plain else ["intermediate_size"]
    unused += [] if chosen else ["moe_intermediate_size", "num_experts_per_tok", "n_shared_experts", _number(f)]
    f.set_aside(*unused, note="no layer has this MLP")
    f.set_aside("n_group", "topk_group", "moe_router_dtype", note=LIMITS)
    f.set_aside("num_nextn_predict_layers", "num_mtp_layers", note=DRAFT)
    return tuple(m for s in sparse if (m := chosen if s else plain))


def sparse_layers(f: Fields) -> list[bool]:
    """Which layers have experts: those `mlp_layer_types` lists, or those after the dense ones at the start."""
    layers, kind = depth(f), f.model_type
    given = per_layer(f, "mlp_layer_types", (DENSE, SPARSE))
    if given is not None:
        f.set_aside("first_k_dense_replace", "moe_layer_freq", note="mlp_layer_types says which layers have experts")
        return [name == SPARSE for name in given]
    if kind in ALWAYS_ONE:
        f.agrees("first_k_dense_replace", 1, f"`{kind}` has one dense layer, or what mlp_layer_types says")
    first = 1 if kind in ALWAYS_ONE else f.integer("first_k_dense_replace", least=0, default=DENSE_FIRST.get(kind))
    if f.has("first_k_dense_replace") and first > layers:
        both = f"{f.said('first_k_dense_replace')} and {f.said('num_hidden_layers')}"
        raise InputError(f"{both}, expected at most as many dense layers as layers")
    return [index >= first and among for index, among in enumerate(_expert_steps(f, layers))]


def _expert_steps(f: Fields, layers: int) -> list[bool]:
    """Which layers `moe_layer_freq` allows experts in: every n-th, or those of a list."""
    if f.lists("moe_layer_freq"):
        listed = f.integers("moe_layer_freq", least=0, most=1) or ()
        if len(listed) != layers:
            said = f"`moe_layer_freq` has {len(listed):,} entries"
            raise InputError(f"{said}, expected one for each of {layers:,} layers")
        return [bool(one) for one in listed]
    if f.model_type in EVERY_LAYER:
        f.agrees("moe_layer_freq", 1, f"`{f.model_type}` has experts in every layer after the dense ones")
        return [True] * layers
    step = f.integer("moe_layer_freq", default=1)
    return [index % step == 0 for index in range(layers)]


def routed(f: Fields, shared: int) -> Experts:
    """The experts of a sparse layer, `shared` width always on."""
    number, chosen = routing(f, _number(f), "num_experts_per_tok")
    return Experts(num_experts=number, per_token=chosen, width=f.integer("moe_intermediate_size"), shared=shared)


def shared_width(f: Fields) -> int:
    """`n_shared_experts` as wide as the others, side by side."""
    return f.integer("moe_intermediate_size") * (f.optional("n_shared_experts", least=0) or 0)


def indexer_types(f: Fields) -> tuple[str, ...]:
    """For each layer whether its indexer is `full`, its own, or `shared`, the last one before it."""
    given, (rule, said) = per_layer(f, "indexer_types", ("full", "shared")), _indexer_rule(f)
    if given and said:
        expect_same("indexer_types", given, rule, f.said(said))
    found = given or rule
    if found[0] != "full":
        raise InputError("`indexer_types[0]` is `shared`, expected `full`: there is no indexer before it")
    return found


def _indexer_rule(f: Fields) -> tuple[tuple[str, ...], str]:
    """The indexers as a pattern, or a step with an offset, or the class says them; and the field that does, if any."""
    layers = depth(f)
    if f.model_type == "hy_v4":
        return tuple("full" if index % 4 == 1 or index == 0 else "shared" for index in range(layers)), ""
    if f.model_type == "deepseek_v32":
        return ("full",) * layers, ""
    name = "index_topk_pattern"
    if (pattern := f.pattern(name, {"F": "full", "S": "shared"})) is not None:
        expect_each(f, name, pattern)
        return pattern, name
    name = "index_topk_freq"
    step = f.integer(name, default=1)
    offset = f.integer("index_skip_topk_offset", least=0, default=2)
    rule = tuple("shared" if max(index - offset + 1, 0) % step else "full" for index in range(layers))
    return rule, name if f.has(name) else ""


def _indexed(f: Fields) -> tuple[LatentAttention, Indexer]:
    """The attention of every layer, and the indexer of those that have their own."""
    per_layer(f, "layer_types", (INDEXED,))
    f.set_aside("indexer_rope_interleave", note="an order of channels")
    f.set_aside("index_share_for_mtp_iteration", note=DRAFT)
    mixer = replace(latent_attention(f), top_k=f.integer("index_topk"), q_lora_rank=f.integer("q_lora_rank"))
    return mixer, _indexer(f, mixer)


def _indexer(f: Fields, mixer: LatentAttention) -> Indexer:
    heads, width = f.integer("index_n_heads"), f.integer("index_head_dim")
    return Indexer(num_heads=heads, head_dim=width, q_lora_rank=mixer.q_lora_rank)


def _dots_kinds(f: Fields) -> tuple[str, ...]:
    """The kind of each layer; `use_dsa` says whether those that see everything have an indexer."""
    layers, kinds = depth(f), per_layer(f, "layer_types", (FULL, SLIDING, INDEXED))
    said = f.flag("use_dsa") if f.has("use_dsa") else None if f.has("per_layer_config") else True
    everything = FULL if said is False else INDEXED
    if kinds is None:
        slides = f.flag("use_sliding_window") if f.has("use_sliding_window") else True
        return tuple(SLIDING if slides and i >= 2 and i % 4 != 1 else everything for i in range(layers))
    f.set_aside("use_sliding_window", note="layer_types says which layers slide")
    return kinds if said is None else tuple(kind if kind == SLIDING else everything for kind in kinds)


def _dots_sizes(f: Fields, *, slides: bool) -> dict[str, int]:
    """The sizes of all layers that slide, or of the others, by the names of their fields."""
    if slides and not f.has("per_layer_config"):
        return {name: f.integer(f"swa_{name}", default=size) for name, size in DOTS_SLIDING.items()}
    sizes = {name: f.integer(name, least=0) for name in LATENT}
    sizes |= dict.fromkeys(("num_attention_heads", "num_key_value_heads"), f.integer("num_attention_heads"))
    return sizes | ({"head_dim": f.integer("head_dim")} if slides else {})


def _dots_attention(usual: dict[str, int], own: Fields, layer: int) -> LatentAttention:
    """The attention of a layer in the sizes that it says itself, else in the usual ones."""
    sizes = {name: own.integer(name) if own.has(name) else size for name, size in usual.items()}
    own.set_aside("head_dim", note="of the rotary part: not what is cached")
    heads, kv = sizes.pop("num_attention_heads"), sizes.pop("num_key_value_heads")
    wide = sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"]
    if (kv, head_dim := sizes.pop("head_dim", wide)) != (heads, wide):
        raise InputError(
            f"layer {layer} has {heads:,} heads, {wide:,} wide by parts; its `num_key_value_heads` is {kv:,} and its "
            f"`head_dim` {head_dim:,}, expected the same"
        )
    return LatentAttention(num_heads=heads, **sizes)  # type: ignore[arg-type]


def _layers(mixer: LatentAttention, parts: Sequence[Mlp | Experts], beside: Iterable[Beside]) -> tuple[Layer, ...]:
    return tuple(Layer(mixer=mixer, mlp=mlp, beside=more) for mlp, more in zip(parts, beside, strict=True))


def _number(f: Fields) -> str:
    """The name of the number of experts that the class or the config knows."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((name for name in names if f.knows(name)), "n_routed_experts")


def _check_head_dim(f: Fields, mixer: LatentAttention) -> None:
    """`head_dim` of such a config is one of its parts, for the rotary embedding or an engine; never the cache's."""
    rope, nope = mixer.qk_rope_head_dim, mixer.qk_nope_head_dim
    parts = (rope,) if f.model_type == "longcat_flash" else (rope, nope, rope + nope, mixer.latent)
    given = f.optional("head_dim") if f.has("head_dim") else None
    if given not in (None, *parts) and f.model_type != "dots3_note_text":
        listed = " or ".join(map(str, dict.fromkeys(parts)))
        raise InputError(f"{f.said('head_dim')}, expected {listed}: a part of a latent head, or its latent")
    f.set_aside("head_dim", "swa_head_dim", note="of the rotary part or an engine: not what is cached")


LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
# Sizes of the sliding layers of Dots3-Note where the config leaves them out.
DOTS_SLIDING = {
    "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024,
    "head_dim": 256, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip

FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "axk1", "sarvam_mla", "glm4_moe_lite"), deepseek),
    **dict.fromkeys(("minicpm3", "youtu"), dense),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), indexed),
    "axk2": axk2,
    "hy_v4": hy_v4,
    "longcat_flash": longcat_flash,
    "dots3_note": dots3_note,
    "dots3_note_text": dots3_note_text,
    "kimi_k25": kimi_k25,
}
