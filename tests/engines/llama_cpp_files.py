"""GGUF files of metadata alone, one an architecture: what llama.cpp needs to build a model around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf

HEADS, KV_HEADS, K_WIDTH, V_WIDTH = (
    f"attention.{name}" for name in ("head_count", "head_count_kv", "key_length", "value_length")
)
WINDOW = "attention.sliding_window"

BASE = {"block_count": 3, "embedding_length": 192, "feed_forward_length": 80, "context_length": 9000, "vocab_size": 64}
MHA = BASE | {HEADS: 6}
GQA = MHA | {KV_HEADS: 2}
WIDE = GQA | {K_WIDTH: 64, V_WIDTH: 64}
SPARSE = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 48}
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 384, "ssm.state_size": 128, "ssm.time_step_rank": 12}
MAMBA2 = SSM | {"ssm.time_step_rank": 6, "ssm.group_count": 2}
DELTA = {
    "ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 64, "ssm.time_step_rank": 8, "ssm.group_count": 4,
}  # fmt: skip
LATENT = BASE | {
    HEADS: 6, "attention.q_lora_rank": 40, "attention.kv_lora_rank": 96, "rope.dimension_count": 32,
}  # fmt: skip
DEEPSEEK = LATENT | SPARSE | {"leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_scale": 1.0}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", GQA),
    "openelm, heads by layer": ("openelm", BASE | {
        HEADS: [6, 8, 12], KV_HEADS: [2, 4, 6], "feed_forward_length": [80, 96, 112], K_WIDTH: 32, V_WIDTH: 32,
    }),
    "deci, no attention in a layer": ("deci", BASE | {
        HEADS: [6, 0, 6], KV_HEADS: [2, 0, 3], "feed_forward_length": [80, 40, 80],
    }),
    "qwen2": ("qwen2", GQA),
    "qwen3": ("qwen3", WIDE),
    "qwen3moe": ("qwen3moe", WIDE | SPARSE),
    "gpt2": ("gpt2", MHA),
    "falcon": ("falcon", MHA | {KV_HEADS: 1}),
    "phi3": ("phi3", GQA | {WINDOW: 100, "rope.scaling.attn_factor": 1.0}),
    "olmoe": ("olmoe", MHA | {KV_HEADS: 6} | SPARSE),
    "gemma2": ("gemma2", WIDE | {WINDOW: 300, "block_count": 5}),
    "gemma3": ("gemma3", WIDE | {WINDOW: 512, "block_count": 13}),
    "gpt-oss": ("gpt-oss", WIDE | SPARSE | {WINDOW: 128, "block_count": 5}),
    "cohere2": ("cohere2", GQA | {WINDOW: 700, "block_count": 5, "logit_scale": 0.5}),
    "llama4": ("llama4", WIDE | SPARSE | {
        "block_count": 5, "interleave_moe_layer_step": 1,
    }),
    "gemma3n": ("gemma3n", WIDE | {
        WINDOW: 512, "block_count": 22, "embedding_length_per_layer_input": 24, "altup.num_inputs": 4,
        "altup.active_idx": 0,
    }),
    "deepseek2, latent": ("deepseek2", DEEPSEEK | {
        KV_HEADS: 1, K_WIDTH: 128, V_WIDTH: 96, "attention.key_length_mla": 80, "attention.value_length_mla": 64,
    }),
    "deepseek2, every head": ("deepseek2", DEEPSEEK | {KV_HEADS: 6, K_WIDTH: 96, V_WIDTH: 64}),
    "minicpm3": ("minicpm3", LATENT | {KV_HEADS: 6, K_WIDTH: 96, V_WIDTH: 32}),
    "mamba": ("mamba", BASE | SSM | {HEADS: 0, "feed_forward_length": 0}),
    "mamba2": ("mamba2", BASE | MAMBA2 | {HEADS: 0, "feed_forward_length": 0}),
    "granitehybrid": ("granitehybrid", BASE | MAMBA2 | {
        HEADS: 6, KV_HEADS: [0, 2, 0], "attention.scale": 1.0,
    }),
    "falcon-h1": ("falcon-h1", WIDE | MAMBA2),
    "nemotron_h": ("nemotron_h", BASE | MAMBA2 | {
        HEADS: 6, KV_HEADS: [0, 2, 0], "feed_forward_length": [0, 0, 80],
    }),
    "lfm2": ("lfm2", BASE | {
        "block_count": 7, "embedding_length": 1536, HEADS: 24, KV_HEADS: [0, 2, 0, 0, 3, 0, 0], "shortconv.l_cache": 3,
    }),
    "qwen3next": ("qwen3next", WIDE | SPARSE | DELTA | {"block_count": 8}),
    "qwen35": ("qwen35", WIDE | DELTA | {"block_count": 8, "full_attention_interval": 4}),
    "kimi-linear": ("kimi-linear", DEEPSEEK | {
        KV_HEADS: [0, 1, 0], K_WIDTH: 128, V_WIDTH: 96, "attention.key_length_mla": 80,
        "attention.value_length_mla": 64, "ssm.conv_kernel": 4, "kda.head_dim": 32, "expert_gating_func": 2,
    }),
}  # fmt: skip


def written(path: Path, arch: str, keys: dict[str, Any]) -> Path:
    """A GGUF file of these keys, of every key that a loader merely insists on, and of no tensor."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_array(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)
    for norm in ("layer_norm_epsilon", "layer_norm_rms_epsilon"):
        writer.add_float32(f"{arch}.attention.{norm}", 1e-5)
    writer.add_array(f"{arch}.rope.dimension_sections", [8, 8, 8, 8])
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
