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
    "model.layers.0.self_attn.indexer.wq_b": (0, [Term.index_q_proj]),
    "model.layers.0.self_attn.indexer.wk": (0, [Term.index_k_proj]),
    "model.layers.1.self_attn.compressor.gate_proj": (1, [Term.compress_proj]),
    "model.layers.1.self_attn.compressor.indexer.gate_proj": (1, [Term.index_k_proj]),
    "model.layers.1.input_layernorm.mlp.fc1": (1, [Term.extra_proj]),
    "bert.encoder.layer.1.attention.self.query": (1, [Term.q_proj]),
    "bert.encoder.layer.1.attention.output.dense": (1, [Term.o_proj]),
    "bert.encoder.layer.1.crossattention.self.key": (1, [Term.cross_k_proj]),
    "bert.encoder.layer.1.crossattention.output.dense": (1, [Term.cross_o_proj]),
    "bert.encoder.layer.1.intermediate.dense": (1, [Term.up_proj]),
    "bert.encoder.layer.1.output.dense": (1, [Term.down_proj]),
    "roberta.encoder.layer.1.output.adapter_modules.en_XX.dense1": (1, [Term.extra_proj]),
    "cls.predictions.transform.dense": (None, [Term.head_proj]),
    "cls.predictions.decoder": (None, [Term.lm_head]),
    "electra.embeddings_project": (None, [Term.embed_proj]),
    "bert.pooler": (None, []),
    "model.layers.2.self_attn.q_proj.linear": (2, [Term.q_proj]),
    "model.layers.2.mlp.fc1": (2, [Term.up_proj, Term.gate_proj]),
    "lm_heads.3": (None, [Term.lm_head]),  # a codebook, no layer
    "model.rotary_emb": (None, []),
    "model.q_proj": (None, []),  # outside every layer
}


@pytest.mark.parametrize("name", CASES)
def test_layer_and_terms(name: str) -> None:
    found = place(name)
    assert (found.layer, list(found.terms)) == CASES[name]
    assert not found.core
