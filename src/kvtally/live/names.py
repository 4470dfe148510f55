"""Which module makes which term: the names of modules, read as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvtally.core.tally import Term

Terms = tuple[Term, ...]

ATTENTION = frozenset({"multi_head_attention", "self_attn", "attn", "attention", "self_attention", "SelfAttention"})
CROSS = frozenset({"encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention"})

_QKV = (Term.q_proj, Term.k_proj, Term.v_proj)

# More than one term: one fused matrix, split in proportion to what the decoder says of each term.
IN_ATTENTION: dict[str, Terms] = {
    **dict.fromkeys(("q_proj", "q", "wq", "query", "Wq", "project_q"), (Term.q_proj,)),
    **dict.fromkeys(("k_proj", "k", "wk", "key", "Wk", "project_k"), (Term.k_proj,)),
    **dict.fromkeys(("v_proj", "v", "wv", "value", "Wv", "project_v"), (Term.v_proj,)),
    **dict.fromkeys(("c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv", "W_pack"), _QKV),
    **dict.fromkeys(("o_proj", "o", "wo", "out_proj", "dense", "c_proj", "Wo", "attention_out"), (Term.o_proj,)),
    "q_a_proj": (Term.q_a_proj,),
    "q_b_proj": (Term.q_b_proj,),
    "kv_a_proj_with_mqa": (Term.kv_a_proj,),
    "kv_b_proj": (Term.kv_b_proj,),
    "q_gate_proj": (Term.q_b_proj,),  # A.X-K2: queries and gates at once
    **dict.fromkeys(("g_proj", "gate_proj"), (Term.extra_proj,)),  # gates of what attention gives
    "kv_proj": (Term.k_proj,),  # DeepSeek-V4: the values are the keys
    "self_attention.kv_proj": (Term.k_proj, Term.v_proj),  # JetMoE, whose queries and outputs are experts'
    "experts.input_linear": (Term.q_proj,),
    "experts.output_linear": (Term.o_proj,),
    "router.layer": (Term.router,),
    **dict.fromkeys(("compressor.kv_proj", "compressor.gate_proj"), (Term.compress_proj,)),
    "o_a_proj": (Term.o_a_proj,),
    "o_b_proj": (Term.o_b_proj,),
}

# Mixers with a recurrence. Their names for q, k, v and gates are also those of attention in some models.
EITHER = frozenset({"mixer", "temporal_block"})  # attention in some layers, a recurrence in others
RECURRENT = frozenset({"mamba", "linear_attn", "mlstm_layer", "conv", *EITHER})

IN_RECURRENCE: dict[str, Terms] = {
    **dict.fromkeys(("in_proj", "in_proj_qkv", "in_proj_qkvz", "in_proj_ba"), (Term.in_proj,)),
    **dict.fromkeys(("in_proj_z", "in_proj_a", "in_proj_b", "linear_x", "linear_y"), (Term.in_proj,)),
    "x_proj": (Term.x_proj,),
    "dt_proj": (Term.dt_proj,),
    **dict.fromkeys(("out_proj", "linear_out"), (Term.out_proj,)),
    **dict.fromkeys(("a_proj", "b_proj", "f_proj", "f_a_proj", "f_b_proj", "g_a_proj", "g_b_proj"), (Term.extra_proj,)),
    **dict.fromkeys(("ogate_preact", "igate_preact", "fgate_preact", "ifgate_preact"), (Term.extra_proj,)),
    **dict.fromkeys(("input_gate", "recurrent_gate"), (Term.extra_proj,)),
}

# Modules of attention beside its own matrices: delays, gates, sinks, biases by distance, taps made for each token.
BESIDE_ATTENTION: dict[str, Terms] = {
    **{name: terms for name, terms in IN_RECURRENCE.items() if terms == (Term.extra_proj,)},
    **dict.fromkeys(("output_gate", "r_proj", "sink_proj", "weight_proj"), (Term.extra_proj,)),
    **dict.fromkeys(("rel_logits_proj", "relative_position_bias"), (Term.extra_proj,)),
    "dt_proj": (Term.extra_proj,),  # Doge: a mask made of the values
    "receptance": (Term.q_proj,),
    "output": (Term.o_proj,),
    **dict.fromkeys(("v_proj_current", "v_proj_delayed"), (Term.v_proj,)),
}

_MESSAGES = ("q_message_gate", "k_message_gate", "v_message_gate", "mlp_message_gate")
_MATRICES = ("down_proj", "forget_gate_proj", "message_gate_proj")
RESIDUALS = frozenset({"attention_input", "mlp_input"})  # attention to blocks of layers before, not to tokens

BESIDE_MLP: dict[str, Terms] = {
    **dict.fromkeys(("per_layer_input_gate", "per_layer_projection"), (Term.extra_proj,)),  # Gemma 3n and 4
    **dict.fromkeys(("linear_left", "linear_right"), (Term.extra_proj,)),
    **dict.fromkeys(("modality_router", "prediction_coefs", "correction_coefs"), (Term.extra_proj,)),  # Gemma 3n
    **dict.fromkeys(("router.layer", "router.proj", "gate.wg"), (Term.router,)),
    "mlp.Wi": (Term.gate_proj, Term.up_proj),  # ModernBERT
    "mlp.Wo": (Term.down_proj,),
    "ffn.0": (Term.up_proj,),  # CTRL
    "ffn.2": (Term.down_proj,),
    "w_in.w_0": (Term.gate_proj,),  # CPM-Ant
    "w_in.w_1": (Term.up_proj,),
    "w_out": (Term.down_proj,),
    "linear": (Term.extra_proj,),
    **dict.fromkeys(("fc1_latent_proj", "fc2_latent_proj"), (Term.extra_proj,)),
    **dict.fromkeys((f"{gate}.{own}" for gate in _MESSAGES for own in _MATRICES), (Term.extra_proj,)),
    **dict.fromkeys((f"{own}.query" for own in RESIDUALS), (Term.extra_proj,)),
    **dict.fromkeys(("input_mix_weight_down", "input_mix_weight_up", "block_inject_weight"), (Term.extra_proj,)),
    "input_linear": (Term.gate_proj, Term.up_proj),
    "output_linear": (Term.down_proj,),
    "proj_up_gate": (Term.gate_proj,),
    "proj_up": (Term.up_proj,),
    "proj_down": (Term.down_proj,),
    "feed_forward.key": (Term.up_proj,),
    "feed_forward.value": (Term.down_proj,),
    "feed_forward.receptance": (Term.extra_proj,),
    **dict.fromkeys(("gate.down_proj", "router_mlp.fc1", "router_mlp.fc2", "router_mlp.out_proj"), (Term.router,)),
}

IN_INDEXER: dict[str, Terms] = {
    **dict.fromkeys(("wq_b", "q_b_proj", "q_proj"), (Term.index_q_proj,)),
    **dict.fromkeys(("wk", "k_proj", "kv_proj", "gate_proj"), (Term.index_k_proj,)),
    "index_qk_proj": (Term.index_q_proj, Term.index_k_proj),
    "weights_proj": (Term.index_weights_proj,),
}
SCORERS = frozenset({"indexer", "scorer"})  # whose own products are index scores, then their sums

_CROSS_TERM = {
    Term.q_proj: Term.cross_q_proj,
    Term.k_proj: Term.cross_k_proj,
    Term.v_proj: Term.cross_v_proj,
    Term.o_proj: Term.cross_o_proj,
}

IN_CROSS: dict[str, Terms] = {
    **{
        name: (_CROSS_TERM[terms[0]],)
        for name, terms in IN_ATTENTION.items()
        if terms[0] in _CROSS_TERM and not terms[1:]
    },
    "q_attn": (Term.cross_q_proj,),  # GPT-2's cross attention: queries apart, keys and values fused
    "c_attn": (Term.cross_k_proj, Term.cross_v_proj),
}

IN_MLP: dict[str, Terms] = {
    **dict.fromkeys(("gate", "router", "shared_expert_gate"), (Term.router,)),
    **dict.fromkeys(("gate_proj", "wi_0", "w1"), (Term.gate_proj,)),
    **dict.fromkeys(("up_proj", "wi_1", "w3", "v1", "fc1", "c_fc", "fc_in", "wi", "dense_h_to_4h"), (Term.up_proj,)),
    **dict.fromkeys(("down_proj", "wo", "w2", "fc2", "c_proj", "fc_out", "dense_4h_to_h"), (Term.down_proj,)),
    "gate_up_proj": (Term.gate_proj, Term.up_proj),
    **dict.fromkeys(("attn_hc", "ffn_hc"), (Term.extra_proj,)),  # hyper-connections: weights of residual streams
    "mlp.fc1": (Term.up_proj, Term.gate_proj),  # a fused gate in Moshi, none elsewhere
    "intermediate.dense": (Term.up_proj,),  # BERT and its kin
    "output.dense": (Term.down_proj,),
    **dict.fromkeys(("dense1", "dense2"), (Term.extra_proj,)),  # X-MOD's adapters
}

OUTSIDE_LAYERS: dict[str, Terms] = {
    **dict.fromkeys(("lm_head", "proj_out", "embed_out", "output", "output_projection"), (Term.lm_head,)),
    **dict.fromkeys(("generator_lm_head", "lm_head.decoder", "predictions.decoder"), (Term.lm_head,)),
    **dict.fromkeys(("lm_head.dense", "transform.dense", "predictions.dense"), (Term.head_proj,)),
    "generator_predictions.dense": (Term.head_proj,),
    "hc_head": (Term.embed_proj,),  # joins residual streams
    **dict.fromkeys(("input_mix_weight_down", "input_mix_weight_up"), (Term.embed_proj,)),
    **dict.fromkeys(("per_layer_model_projection", "project_in"), (Term.embed_proj,)),
    "project_out": (Term.head_proj,),
    "model.decoder": (),  # the stack of a model, not a head
    "decoder": (Term.lm_head,),
    **dict.fromkeys(("final_input.query", "message_input.query"), (Term.embed_proj,)),
    "head": (Term.lm_head,),
    **dict.fromkeys(("embeddings_project", "embedding_hidden_mapping_in", "map_inputs_layer"), (Term.embed_proj,)),
}

NORMS = frozenset({"input_layernorm", "post_attention_layernorm"})  # A.X-K2's have gates of low rank

LISTS: dict[str, Terms] = {  # numbered, and no layers: one for each codebook, stream or kind
    "lm_heads": (Term.lm_head,),
    "embed_tokens": (),
    "rotary_embs": (),
    **dict.fromkeys(("altup_projections", "altup_unembed_projections"), (Term.embed_proj,)),
}


# Modules whose own products are between activations: scores, then what they mix.
CORES: dict[str, Terms] = {
    **dict.fromkeys((*ATTENTION, *EITHER, "self"), (Term.qk, Term.pv)),
    **dict.fromkeys(CROSS, (Term.cross_qk, Term.cross_pv)),
    **dict.fromkeys(SCORERS, (Term.index_qk, Term.index_sum)),
    **dict.fromkeys(RESIDUALS, (Term.extra_proj, Term.extra_proj)),
}
OUTSIDE_CORES: dict[str, Terms] = dict.fromkeys(("final_input", "message_input"), (Term.embed_proj, Term.embed_proj))


class Place(NamedTuple):
    """Where a module stands: its layer, the terms its matrix makes, and what attention core it is.

    `layer` is None outside the layers; `terms` is empty where the table does not know the name;
    `core` is (scores, mixing) for an attention module, whose own products are between activations.
    """

    layer: int | None
    terms: Terms
    core: Terms


def place(name: str, parts: int = 1) -> Place:
    """Where the module called `name` stands, by its dotted name: the first number is the layer.

    A layer that is made of `parts` layers (LongCat-Flash: two) numbers them by the second number.

    >>> place("model.layers.3.self_attn.q_proj")
    Place(layer=3, terms=(<Term.q_proj: 'q_proj'>,), core=())
    >>> place("transformer.h.0.mlp.c_proj").terms, place("transformer.h.0.attn.c_proj").terms
    ((<Term.down_proj: 'down_proj'>,), (<Term.o_proj: 'o_proj'>,))
    >>> place("decoder.block.1.layer.1.EncDecAttention").core
    (<Term.cross_qk: 'cross_qk'>, <Term.cross_pv: 'cross_pv'>)
    """
    *around, own = _bare(name).split(".")
    if listed := [part for part in around if part in LISTS]:
        return Place(None, LISTS[listed[0]], ())
    if layer_number(name) is not None:
        return Place(layer_number(name), (Term.extra_proj,), ())  # what a layer multiplies by itself
    numbers = [int(part) for part in (*around, own) if part.isdecimal()]
    layer = numbers[0] * parts + sum(numbers[1:2] if parts > 1 else ()) if numbers else None
    if layer is None:
        return Place(None, _terms(OUTSIDE_LAYERS, around, own), OUTSIDE_CORES.get(own, ()))
    numbered = parts > 1 and own.isdecimal() and bool(ATTENTION.intersection(around[-1:]))
    core = CORES["attn"] if numbered else CORES.get(own, ())
    if core:
        crossed = core == CORES["attn"] and CROSS.intersection(around)
        return Place(layer, (), CORES["cross_attn"] if crossed else core)
    return Place(layer, _in_layer(around, own), ())


def _in_layer(around: list[str], own: str) -> Terms:
    """The terms of a module in a layer, by its name and those of the modules around it."""
    if SCORERS.intersection(around):
        return IN_INDEXER.get(own, ())
    if NORMS.intersection(around) or any(part.endswith("adapter_list") for part in around):
        return (Term.extra_proj,)
    if RECURRENT.intersection(around):
        return _terms(IN_MLP | BESIDE_MLP | IN_ATTENTION | IN_RECURRENCE, around, own)
    if CROSS.intersection(around):
        return _terms(IN_CROSS, around, own)
    attends = ATTENTION.intersection(around)
    return _terms(IN_ATTENTION | BESIDE_ATTENTION if attends else IN_MLP | BESIDE_MLP, around, own)


def _bare(name: str) -> str:
    """The name without a `linear` at its end, unless that is the name of a module of its own in the layer."""
    outer = name.removesuffix(".linear")
    return name if outer.rpartition(".")[2].isdecimal() else outer


def of_parameter(name: str) -> Terms:
    """The terms of a parameter by its name: those of its module, or of its own name in that.

    >>> of_parameter("model.layers.1.mamba.dt_proj.weight"), of_parameter("model.layers.1.mamba.dt_proj_weight")
    ((<Term.dt_proj: 'dt_proj'>,), (<Term.dt_proj: 'dt_proj'>,))
    """
    return place(name.removesuffix(".weight").removesuffix("_weight")).terms


def layer_number(name: str) -> int | None:
    """The number of the layer that `name` is the name of, or None where it is not that of a whole layer.

    >>> layer_number("model.layers.12"), layer_number("decoder.block.0.layer.1"), layer_number("model.layers")
    (12, None, None)
    """
    *around, own = name.split(".")
    whole = own.isdecimal() and bool(around) and not any(part.isdecimal() or part in LISTS for part in around)
    return int(own) if whole else None


def _terms(table: dict[str, Terms], around: list[str], own: str) -> Terms:
    """The terms of a module by its own name and that of the module around it, else by its own alone."""
    return table.get(".".join((*around[-1:], own)), table.get(own, ()))


def parts_of_a_layer(names: Iterable[str]) -> int:
    """How many layers with attention of their own a numbered layer is made of.

    >>> parts_of_a_layer(["layers.0.self_attn.0", "layers.0.self_attn.1"]), parts_of_a_layer(["layers.0.self_attn"])
    (2, 1)
    """
    last = [name.rpartition(".")[2] for name in names if name.rpartition(".")[0].rpartition(".")[2] in ATTENTION]
    return 1 + max((int(part) for part in last if part.isdecimal()), default=0)


def is_first_layer(name: str) -> bool:
    """Whether `name` is that of layer 0 itself: `0` is its last part and its only number.

    >>> is_first_layer("model.layers.0"), is_first_layer("decoder.block.0.layer.0")
    (True, False)
    """
    return layer_number(name) == 0
