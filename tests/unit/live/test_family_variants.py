"""Closed = traced where a family's default config would not show it: what only some of its models have."""

from __future__ import annotations

from typing import Any

import pytest

from kvtally import cached, chunked, compare, count, uncached
from kvtally.core.tally import NOT_COUNTED
from kvtally.live import as_run, build, trace
from kvtally.pure.config import read_config

LISTS = (uncached(13, 4), cached(13, 4), chunked(13, 4, 5))  # past the window of 5
NEAR, FAR = "sliding_attention", "full_attention"
ATTENTION = {
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 10, "intermediate_size": 36, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
SLIDING = ATTENTION | {"sliding_window": 5}
ROUTED = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
SHARED = ROUTED | {"shared_expert_intermediate_size": 20}
TURNS = {"layer_types": [NEAR, NEAR, FAR, NEAR, NEAR, FAR]}
GEMMA4 = SLIDING | TURNS | {"global_head_dim": 14, "hidden_size_per_layer_input": 0}

VARIANTS: dict[str, dict[str, Any]] = {
    "gemma4 with shared K and V, wide MLPs and inputs for each layer": GEMMA4
    | {"model_type": "gemma4_text", "num_kv_shared_layers": 2, "use_double_wide_mlp": True}
    | {"hidden_size_per_layer_input": 7, "vocab_size_per_layer_input": 61},
    "gemma4 with experts, and keys that are values": GEMMA4
    | {"model_type": "gemma4_text", "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2}
    | {"moe_intermediate_size": 12, "attention_k_eq_v": True, "num_global_key_value_heads": 3},
    "gemma4 unified with shared K and V": GEMMA4 | {"model_type": "gemma4_unified_text", "num_kv_shared_layers": 2},
    "mellum that slides": SLIDING
    | ROUTED
    | TURNS
    | {"model_type": "mellum", "mlp_layer_types": ["dense", "sparse"] * 3},
    "laguna with heads by layer and a wide gate": SLIDING
    | SHARED
    | TURNS
    | {"model_type": "laguna", "num_attention_heads_per_layer": [2, 4, 6, 8, 2, 4], "gating": "per-element"},
    "smollm3 that slides": SLIDING | {"model_type": "smollm3", "use_sliding_window": True, "no_rope_layer_interval": 2},
    "qwen2_moe that slides, every second layer dense": SLIDING
    | SHARED
    | {"model_type": "qwen2_moe", "use_sliding_window": True, "max_window_layers": 4, "decoder_sparse_step": 2},
    "llama4 with dense layers": ATTENTION
    | {"model_type": "llama4_text", "attention_chunk_size": 6, "interleave_moe_layer_step": 2}
    | {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 18},
    "cohere2_moe with dense layers first": SLIDING
    | {"model_type": "cohere2_moe", "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 2}
    | {"first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 2, "sliding_window_pattern": 3}
    | {"prefix_dense_intermediate_size": 28},
    "granitemoeshared with a shared expert": ATTENTION
    | {"model_type": "granitemoeshared", "num_local_experts": 4, "num_experts_per_tok": 2}
    | {"shared_intermediate_size": 20},
    "hunyuan with a choice for each layer": ATTENTION
    | {"model_type": "hunyuan_v1_moe", "num_experts": 5, "moe_topk": [1, 2, 1, 2, 1, 2]},
    "apertus1p5 with a narrow output head": ATTENTION | {"model_type": "apertus1p5_text", "output_vocab_size": 40},
    "minimax_m3 with sparse layers": ATTENTION
    | {"model_type": "minimax_m3_vl_text", "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8}
    | {"dense_intermediate_size": 18, "shared_intermediate_size": 20, "index_n_heads": 2, "index_head_dim": 8}
    | {"index_block_size": 3, "index_topk_blocks": 2, "layer_types": [FAR, "minimax_m3_sparse"] * 3}
    | {"mlp_layer_types": ["dense", "sparse"] * 3},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_closed_equals_traced(name: str) -> None:
    config = VARIANTS[name]
    real, decoder = build(config, device="cpu"), read_config(config)
    for passes in LISTS:
        asked = as_run(real, passes)
        traced = trace(real, asked, decoder)
        found = compare(count(decoder, asked, kernel="dense"), traced)
        assert found.agree, f"{name}: {found}"
        assert traced.uncounted == NOT_COUNTED


def test_the_projection_before_a_narrow_output_head_is_made_for_every_token() -> None:
    """OPT-350M: what transformers projects out for rows without logits is not needed, and named in its cell."""
    config = {
        "model_type": "opt", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "ffn_dim": 36, "word_embed_proj_dim": 10, "max_position_embeddings": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    real, decoder = build(config, device="cpu"), read_config(config)
    found = compare(count(decoder, cached(13, 4), kernel="dense"), trace(real, cached(13, 4), decoder))
    assert [(*d.cell, d.left, d.right) for d in found.differences] == [
        ("prefill", None, "head_proj", 24 * 10, 13 * 24 * 10)
    ]
