"""Which small size the name of a config field means: the tables of the shrinking rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvtally.pure.config import WITH_ENCODER

VOCAB = 131
SOURCE = 7  # tokens that an encoder reads
ENCODED = ("mllama", "trocr")  # decoders that attend to an encoder although they are built alone

# The first pattern that a name matches decides. Sizes differ from each other, so that a mistaken one shows.
_SIZES: tuple[tuple[str, int], ...] = (
    (r".*vocab_size.*|output_vocab_size", VOCAB),
    (r"unpadded_vocab_size", VOCAB - 1),
    # depth
    (r"(num|n)_(hidden_)?layers?|num_blocks|(en|de)coder_layers|num_(en|de)coder_layers", 4),
    (r"conf_num_hidden_layers|depth|num_global_layers", 2),
    # widths that must be equal to each other
    (r"hidden_size|d_model|n_embd|emb_dim|embedding_dim|word_embed_proj_dim|out_hidden_size", 96),
    (r"adapter_(in|out)_dim|adapter_input_size", 96),
    (r"hidden_size_global|vision_output_dim|projector_output_dim|lru_width", 96),
    (r"embedding_size|input_embedding_size", 72),
    # heads
    (r"(\w+_)?(key_value_heads|kv_heads|kv_n_heads|num_query_groups)(_\w+)?|n_head_kv", 2),
    (r"linear_num_key_heads", 2),
    (r"linear_num_value_heads|linear_num_heads", 4),
    (r"mamba_(n|num)_heads|n_mamba_heads", 12),
    (r"(swa_|decoder_|encoder_|num_decoder_|num_encoder_|conf_num_)?(num_)?(attention_)?heads?", 6),
    (r"n_heads?|num_heads|attention_heads|(\w+_)?num_attention_heads(_per_layer)?", 6),
    # widths of a head
    (r"qk_rope_head_dim", 8),
    (r"qk_nope_head_dim", 20),
    (r"(swa_)?v_head_dim", 24),
    (r"index_head_dim|indexer_head_dim", 16),
    (r"index_n_heads|indexer_n_heads", 16),  # with few a score is often exactly 0 in all of them
    (r"linear_key_head_dim", 10),
    (r"linear_value_head_dim", 14),
    (r"linear_head_dim", 12),
    (r"mamba_(d_head|head_dim|headdim)", 16),
    (r"(swa_|global_)?(head_dim|d_head|dim_head|d_kv|kv_channels|attention_head_dim|attention_head_size)", 32),
    # ranks
    (r"kv_lora_rank", 28),
    (r"q_lora_rank", 44),
    (r"(\w+_)?(rank|lowrank)", 18),
    # widths of the feed-forward
    (r"moe_intermediate_size|expert_ffn_hidden_size|moe_ffn_hidden_size", 40),
    (r"(\w+_)?shared_expert\w*_intermediate_size|shared_intermediate_size|shared_expert_intermediate_size", 56),
    (r"(\w+_)?(intermediate_size|intermediate_size_mlp|ffn_dim|ffn_hidden_size|d_ff|dff|dim_ff|n_inner|d_inner)", 80),
    (r"feed_forward_size|mlp_dim", 80),
    # experts
    (r"(\w+_)?(num_experts_per_tok|num_experts_per_token|top_k_experts|moe_top_?k|moe_k)", 3),
    (r"(\w+_)?(num_(local_)?experts|n_routed_experts)|zero_expert_num", 8),
    (r"n_group|num_expert_group", 2),
    (r"topk_group", 1),
    # how far a query looks
    (r"(\w+_)?(sliding_window(_size)?|window_size|local_attention|local_attention_window_len|keep_window_size)", 5),
    (r"attention_chunk_size", 6),
    (r"index_topk|indexer_topk", 4),
    (r"floor_scale|log_scaling_n_floor|original_max_position_embeddings", 7),  # from here on queries are scaled
    (r"attn_layer_period", 4),
    (r"attn_layer_offset", 2),
    # convolution and state
    (r"(mamba_d_state|ssm_state_size|state_size)", 9),
    (r"(chunk_size|mamba_chunk_size)", 8),
    (r"(mamba_)?(dt_rank|time_step_rank)", 11),
    (r"mamba_d_ssm", 192),
    (r"(mamba_)?n_?groups", 1),
    # positions and prompts
    (r"prompt_length", 3),
    (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|context_length|model_max_length)", 160),
    (r"max_(source|target)_positions", 128),
    (r"rotary_dim", 8),
    # towers
    (r"image_size", 32),
    (r"patch_size", 8),
)
SIZES = tuple((re.compile(pattern), size) for pattern, size in _SIZES)

COUNTS = 3  # sizes up to this one never grow: one KV head, or one expert a token, stays one

# Fields that list the layers they are true of, by index.
INDEX_LISTS = re.compile(
    r"(hybrid_layer|ple_layer|full_attn|attn_layer)_(ids|idxs|indices)|mlp_only_layers|moe_layers|cross_attention_layers"
)

# Counts of layers at the start, and at the end, that are of another kind.
LEADING = ("first_k_dense_replace", "num_dense_layers")
TRAILING = ("num_kv_shared_layers",)

# Never passed: the class says them itself.
ABSENT = frozenset({"model_type", "transformers_version", "architectures", "dtype", "id2label", "label2id"})

# Sizes that a class declares as None and then needs.
MISSING: dict[str, int] = {
    "head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "num_key_value_heads": 2,
}


def source_of(name: str, config: Any) -> int | None:
    """How many tokens the encoder reads that the architecture `name` attends to; None where it has none."""
    return SOURCE if config.is_encoder_decoder or name in (*WITH_ENCODER, *ENCODED) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptional:
    """What the rule cannot know of an architecture, and why: fields of the full config, and of the small one."""

    why: str
    full: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)


ORDINARY = Exceptional(why="the rule is enough")

_ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
_QUERY_SPARSE = {
    "indexer_n_heads": 16,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 32,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
}

_DOTS = {"head_dim": 28, "sliding_window": 5}
_CSA, _HCA = "compressed_sparse_attention", "heavily_compressed_attention"

EXCEPTIONS: dict[str, Exceptional] = {
    "bamba": Exceptional(why="has no attention layer by default", full={"attn_layer_indices": [9, 18, 27]}),
    "cohere_compass_text": Exceptional(
        why="has one kind of layer and no rotary base by default",
        full={"layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 10},
        small={"rope_parameters": {"sliding_attention": _ROPE, "full_attention": None}},
    ),
    "dbrx": Exceptional(
        why="reads rope_theta, which its class no longer declares, and needs a bound for q, k and v",
        small={"attn_config": {"rope_theta": 10_000.0, "clip_qkv": 8}},
    ),
    "deepseek_v2": Exceptional(why="has no number of experts a token by default", small={"num_experts_per_tok": 3}),
    "deepseek_v4": Exceptional(
        why="has one KV head, groups of heads, entries of more tokens than a short run, and no plain window by default",
        full={"layer_types": [*["sliding_attention", _CSA, _HCA] * 14, _CSA]},
        small={
            "num_key_value_heads": 1,
            "o_groups": 2,
            "compress_rates": {_CSA: 3, _HCA: 4},
        },
    ),
    "dory": Exceptional(
        why="writes each layer as two, and counts its looped layers apart",
        small={
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_hidden_layers": 6,
            "n_input_layers": 2,
            "n_recurrent_layers": 2,
            "n_output_layers": 2,
        },
    ),
    "dots3_note": Exceptional(
        why="wants towers that end as wide as they begin, and its text as below",
        small={
            "text_config": _DOTS,
            "vision_config": {"adapter_in_dim": 96, "adapter_out_dim": 96},
            "audio_config": {"adapter_input_size": 96, "adapter_out_dim": 96},
        },
    ),
    "dots3_note_text": Exceptional(
        why="wants a head of its sliding layers as wide as both parts of it, and derives its window", small=_DOTS
    ),
    "gemma4_assistant": Exceptional(
        why="refuses its own default",
        full={"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    ),
    "gpt_neo": Exceptional(
        why="writes its layers as a nested repetition", small={"attention_types": [[["global", "local"], 2]]}
    ),
    "granitemoehybrid": Exceptional(
        why="has no attention layer by default",
        full={"layer_types": ["mamba", "mamba", "mamba", "attention"] * 8},
    ),
    "helium": Exceptional(why="needs heads as wide as hidden_size together", small={"head_dim": 16}),
    "inkling2_loop_text": Exceptional(
        why="loops over a block of layers that it names by number",
        small={"n_layers_per_attn_res_block": 2, "loop_layer_index_start": 2, "loop_layer_index_end": 4},
    ),
    "jamba": Exceptional(why="attends too seldom", small={"attn_layer_period": 3, "attn_layer_offset": 1}),
    "lfm2": Exceptional(
        why="has no convolution by default",
        full={"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    ),
    "lfm2_moe": Exceptional(
        why="has no default for layer_types",
        full={"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    ),
    "longcat_flash": Exceptional(
        why="takes head_dim for the rotary part; how many tokens choose experts that do nothing depends on the text",
        small={"head_dim": 8, "zero_expert_num": 0},
    ),
    "mimo_v2_flash": Exceptional(why="has twice the KV heads in its windows", small={"num_attention_heads": 8}),
    "minimax_m3_vl_text": Exceptional(
        why="has sparse layers in its models and none by default, and an indexer's head for each KV head",
        full={"layer_types": ["full_attention", "minimax_m3_sparse"] * 30},
        small={"index_n_heads": 2},
    ),
    "qwen4_exp": Exceptional(why="needs an indexer and has none by default", small={"text_config": _QUERY_SPARSE}),
    "qwen4_exp_text": Exceptional(why="needs an indexer and has none by default", small=_QUERY_SPARSE),
    "prophetnet": Exceptional(why="counts positions from its padding id", small={"pad_token_id": 0}),
    "reformer": Exceptional(
        why="needs axial positions as many and as wide as the rest",
        small={"axial_pos_embds_dim": [32, 64], "axial_pos_shape": [8, 20]},
    ),
    "xlstm": Exceptional(
        why="rounds widths up to 64 and shares them among heads",
        small={"num_heads": 4, "hidden_size": 128, "embedding_dim": 128},
    ),
    "xmod": Exceptional(why="needs a language", small={"default_language": "en_XX"}),
}
