"""Which module makes which term: the names of modules, read as a table."""

from __future__ import annotations

from typing import NamedTuple

from kvtally.core.tally import Term

Terms = tuple[Term, ...]

ATTENTION = frozenset({"self_attn", "attn", "attention", "self_attention", "SelfAttention"})
CROSS = frozenset({"encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention"})

_QKV = (Term.q_proj, Term.k_proj, Term.v_proj)

# More than one term: one fused matrix, split in proportion to what the decoder says of each term.
IN_ATTENTION: dict[str, Terms] = {
    **dict.fromkeys(("q_proj", "q", "wq", "query"), (Term.q_proj,)),
    **dict.fromkeys(("k_proj", "k", "wk", "key"), (Term.k_proj,)),
    **dict.fromkeys(("v_proj", "v", "wv", "value"), (Term.v_proj,)),
    **dict.fromkeys(("c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv", "W_pack"), _QKV),
    **dict.fromkeys(("o_proj", "o", "wo", "out_proj", "dense", "c_proj"), (Term.o_proj,)),
    "q_a_proj": (Term.q_a_proj,),
    "q_b_proj": (Term.q_b_proj,),
    "kv_a_proj_with_mqa": (Term.kv_a_proj,),
    "kv_b_proj": (Term.kv_b_proj,),
}

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
    **dict.fromkeys(("up_proj", "wi_1", "w3", "fc1", "c_fc", "fc_in", "wi", "dense_h_to_4h"), (Term.up_proj,)),
    **dict.fromkeys(("down_proj", "wo", "w2", "fc2", "c_proj", "fc_out", "dense_4h_to_h"), (Term.down_proj,)),
    "gate_up_proj": (Term.gate_proj, Term.up_proj),
}

OUTSIDE_LAYERS: dict[str, Terms] = dict.fromkeys(("lm_head", "proj_out", "embed_out", "output"), (Term.lm_head,))


class Place(NamedTuple):
    """Where a module stands: its layer, the terms its matrix makes, and what attention core it is.

    `layer` is None outside the layers; `terms` is empty where the table does not know the name;
    `core` is (scores, mixing) for an attention module, whose own products are between activations.
    """

    layer: int | None
    terms: Terms
    core: Terms


def place(name: str) -> Place:
    """Where the module called `name` stands, by its dotted name: the first number is the layer.

    >>> place("model.layers.3.self_attn.q_proj")
    Place(layer=3, terms=(<Term.q_proj: 'q_proj'>,), core=())
    >>> place("transformer.h.0.mlp.c_proj").terms, place("transformer.h.0.attn.c_proj").terms
    ((<Term.down_proj: 'down_proj'>,), (<Term.o_proj: 'o_proj'>,))
    >>> place("decoder.block.1.layer.1.EncDecAttention").core
    (<Term.cross_qk: 'cross_qk'>, <Term.cross_pv: 'cross_pv'>)
    """
    *around, own = name.split(".")
    layer = next((int(part) for part in (*around, own) if part.isdecimal()), None)
    if layer is None:
        return Place(None, OUTSIDE_LAYERS.get(own, ()), ())
    if own in ATTENTION:
        return Place(layer, (), (Term.qk, Term.pv))
    if own in CROSS:
        return Place(layer, (), (Term.cross_qk, Term.cross_pv))
    table = IN_CROSS if CROSS.intersection(around) else IN_ATTENTION if ATTENTION.intersection(around) else IN_MLP
    return Place(layer, table.get(own, ()), ())


def is_first_layer(name: str) -> bool:
    """Whether `name` is that of layer 0 itself: `0` is its last part and its only number.

    >>> is_first_layer("model.layers.0"), is_first_layer("decoder.block.0.layer.0")
    (True, False)
    """
    *around, own = name.split(".")
    return own == "0" and bool(around) and not any(part.isdecimal() for part in around)
