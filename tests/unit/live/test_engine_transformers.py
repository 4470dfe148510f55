"""What transformers is said to reserve is what its real caches have, to the byte, dynamic and static."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import StaticCache

from kvtally.live.harness import build
from kvtally.live.size_measured import measured_cache
from kvtally.pure.config import read_config
from kvtally.pure.engines import reserved

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10,
    "num_hidden_layers": 3, "intermediate_size": 20, "vocab_size": 19, "max_position_embeddings": 600,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 6,
    "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 19, "kv_lora_rank": 20, "q_lora_rank": 12,
    "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 14, "first_k_dense_replace": 2,
}  # fmt: skip
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 12,
}  # fmt: skip
GEMMA3 = LLAMA | {
    "model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": LLAMA | {"model_type": "mistral", "sliding_window": 5},
    "gemma3": GEMMA3,
    "deepseek_v3": DEEPSEEK,
    "mamba2": {
        "model_type": "mamba2", "hidden_size": 24, "num_heads": 6, "head_dim": 8, "state_size": 5, "n_groups": 1,
        "num_hidden_layers": 2, "vocab_size": 19,
    },
    "qwen3_next": LLAMA | DELTA | {
        "model_type": "qwen3_next", "num_hidden_layers": 4,
        "layer_types": [*["linear_attention"] * 3, "full_attention"],
    },
}  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 4, 5, 130])
@pytest.mark.parametrize("name", CONFIGS)
def test_dynamic(name: str, tokens: int) -> None:
    """Layer by layer; states have the type that the model itself gives them, so both are asked."""
    config = CONFIGS[name]
    found = measured_cache(config, tokens)
    assert found.agree
    bytes_by_layer = [layer.bytes for layer in found.layers]
    said = []
    for state in ("fp32", "bf16"):
        by_layer = reserved("transformers", read_config(config), tokens, state_dtype=state).by("layer", reserved=True)
        said.append([by_layer.get(index, 0) for index in range(len(found.layers))])
    assert bytes_by_layer in said


@pytest.mark.parametrize("longest", [3, 5, 40])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3"])
def test_static(name: str, longest: int) -> None:
    model = build(CONFIGS[name], dtype="float32")
    cache = StaticCache(config=model.config, max_cache_len=longest)
    model(input_ids=torch.zeros((2, 3), dtype=torch.long), past_key_values=cache)
    found = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    said = reserved(
        "transformers", read_config(CONFIGS[name]), 3, batch=2, dtype="fp32", cache="static", max_cache_len=longest
    )
    assert said.bytes_reserved == found
