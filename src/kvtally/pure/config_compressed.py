"""Decoders with compressed attention: DeepSeek-V4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.mixer import Mixer
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import SLIDING, decoder, depth, per_layer
from kvtally.pure.config_fields import DRAFT, HINT, Fields
from kvtally.pure.config_latent import routed, shared_width

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
RATIOS = {SLIDING: 0, SPARSE: 4, HEAVY: 128}  # tokens an entry, where the config leaves them out
HASHED = ("hash_moe", "moe")


def deepseek_v4(f: Fields) -> Decoder:
    """DeepSeek-V4: windows with compressed entries, chosen by an indexer or not, experts in every layer.

    `hc_mult` streams of the hidden state: each block takes its weights from all of them, (2 + hc) * hc
    numbers a token, and mixes them, hc * hc * hidden_size; one more matrix joins them before the output
    head. The first layers choose experts by a table of tokens, and score them all the same.
    """
    kinds, ratios = layer_kinds(f), _ratios(f)
    per_layer(f, "mlp_layer_types", HASHED)
    f.set_aside("mlp_layer_types", "num_hash_layers", note="how experts are chosen, not how many")
    f.set_aside("qk_rope_head_dim", "compress_rope_theta", note="positions")
    f.set_aside("expert_dtype", note="a dtype")
    f.set_aside("num_nextn_predict_layers", note=DRAFT)
    mlp = routed(f, shared_width(f))
    streams, hidden = f.integer("hc_mult", default=4), f.integer("hidden_size")
    weights, mix = (streams * hidden, (2 + streams) * streams), (streams * streams, hidden)
    extra = Recurrent(matrices=tuple((Term.extra_proj, *sizes) for sizes in (weights, mix) * 2))
    mixers = {kind: _mixers(f, kind, ratios[kind]) for kind in dict.fromkeys(kinds)}
    layers = tuple(Layer(mixer=mixers[k][0], beside=(*mixers[k][1], extra), mlp=mlp) for k in kinds)
    return replace(decoder(f, layers), outside=((streams * hidden, streams),))


def layer_kinds(f: Fields) -> tuple[str, ...]:
    """The kind of each layer: as listed, or by its ratio, or as the class has it.

    `compress_ratios` may be longer than the layers are many: the rest is for draft layers.
    """
    layers = depth(f)
    listed = per_layer(f, "layer_types", tuple(RATIOS))
    if listed is not None:
        f.set_aside("compress_ratios", note="layer_types says the kinds")
        return listed
    ratios = f.integers("compress_ratios", least=0, most=max(RATIOS.values()))
    if ratios is None:
        rule = (HEAVY, HEAVY, *(SPARSE if index % 2 else HEAVY for index in range(layers - 2)))[:layers]
        f.derive("layer_types", f"{HEAVY} twice, then {HEAVY} and {SPARSE} in turn", "class default")
        return rule
    if len(ratios) < layers:
        said = f"`compress_ratios` has {len(ratios):,} entries and {f.said('num_hidden_layers')}"
        raise InputError(f"{said}, expected one for each layer at least")
    kinds = {ratio: kind for kind, ratio in RATIOS.items()}
    for index, ratio in enumerate(ratios[:layers]):
        if ratio not in kinds:
            known = ", ".join(map(str, sorted(kinds)))
            raise InputError(f"`compress_ratios[{index}]` is {ratio}; known: {known}", hint=HINT)
    return tuple(kinds[ratio] for ratio in ratios[:layers])


def _ratios(f: Fields) -> dict[str, int | None]:
    """How many tokens an entry stands for in each kind of layer."""
    given = f.part("compress_rates")
    ratios: dict[str, int | None] = {SLIDING: None}
    for kind, older in ((SPARSE, "compress_rate_csa"), (HEAVY, "compress_rate_hca")):
        said = given.integer(kind, least=2, default=RATIOS[kind])
        ratios[kind] = f.integer(older, least=2) if f.has(older) else said
    return ratios


def _mixers(f: Fields, kind: str, ratio: int | None) -> tuple[CompressedAttention, tuple[Mixer, ...]]:
    """The attention of one kind of layer, and the indexer beside it."""
    f.agrees("num_key_value_heads", 1, "all heads share one key, which is the value as well")
    chosen = kind == SPARSE
    mixer = CompressedAttention(
        num_heads=f.integer("num_attention_heads"),
        head_dim=f.integer("head_dim"),
        window=f.integer("sliding_window"),
        q_lora_rank=f.integer("q_lora_rank"),
        o_lora_rank=f.integer("o_lora_rank"),
        o_groups=f.integer("o_groups"),
        ratio=ratio,
        overlap=chosen,
        top_k=f.integer("index_topk") if chosen else None,
    )
    index = ("index_n_heads", "index_head_dim", "index_topk")
    if not chosen or ratio is None:
        f.set_aside(*(name for name in index if name not in f.facts), note="of layers with an indexer")
        return mixer, ()
    heads, width = f.integer("index_n_heads"), f.integer("index_head_dim")
    return mixer, (Indexer(num_heads=heads, head_dim=width, q_lora_rank=mixer.q_lora_rank, ratio=ratio),)


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {"deepseek_v4": deepseek_v4}
