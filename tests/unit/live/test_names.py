"""Every name that makes a term, as transformers writes it."""

from __future__ import annotations

import pytest

from kvtally import Term
from kvtally.live.names import place

CASES = {
    "model.layers.11.self_attn.kv_a_proj_with_mqa": (11, [Term.kv_a_proj]),
    "model.layers.0.mlp.shared_experts.gate_proj": (0, [Term.gate_proj]),
    "model.layers.0.mlp.gate": (0, [Term.router]),
    "model.layers.0.mlp.router": (0, [Term.router]),
    "model.layers.2.block_sparse_moe.experts.5.w2": (2, [Term.down_proj]),
    "gpt_neox.layers.1.attention.dense": (1, [Term.o_proj]),
    "gpt_neox.layers.1.mlp.dense_4h_to_h": (1, [Term.down_proj]),
    "transformer.h.3.attn.c_attn": (3, [Term.q_proj, Term.k_proj, Term.v_proj]),
    "transformer.h.3.crossattention.c_attn": (3, [Term.cross_k_proj, Term.cross_v_proj]),
    "transformer.h.3.self_attention.query_key_value": (3, [Term.q_proj, Term.k_proj, Term.v_proj]),
    "decoder.block.0.layer.0.SelfAttention.o": (0, [Term.o_proj]),
    "decoder.block.0.layer.1.EncDecAttention.k": (0, [Term.cross_k_proj]),
    "decoder.block.0.layer.2.DenseReluDense.wo": (0, [Term.down_proj]),
    "model.decoder.layers.4.encoder_attn.out_proj": (4, [Term.cross_o_proj]),
    "model.decoder.layers.4.fc1": (4, [Term.up_proj]),
    "model.layers.4.mlp.gate_up_proj": (4, [Term.gate_proj, Term.up_proj]),
    "lm_head": (None, [Term.lm_head]),
    "proj_out": (None, [Term.lm_head]),
    "model.layers.0.self_attn.gate": (0, []),  # not a router
    "model.layers.0.self_attn.indexer.wq_b": (0, []),
    "model.rotary_emb": (None, []),
    "model.q_proj": (None, []),  # outside every layer
}


@pytest.mark.parametrize("name", CASES)
def test_layer_and_terms(name: str) -> None:
    found = place(name)
    assert (found.layer, list(found.terms)) == CASES[name]
    assert not found.core
