"""Which small size the name of a config field means: the tables of the shrinking rule."""

from __future__ import annotations

import re
from typing import Any

VOCAB = 131
SOURCE = 7  # tokens that an encoder reads

# The first pattern that a name matches decides. Sizes differ from each other, so that a mistaken one shows.
_SIZES: tuple[tuple[str, int], ...] = (
    (r".*vocab_size.*|output_vocab_size", VOCAB),
    (r"unpadded_vocab_size", VOCAB - 1),
    # depth
    (r"(num|n)_(hidden_)?layers?|num_blocks|(en|de)coder_layers|num_(en|de)coder_layers", 4),
    (r"conf_num_hidden_layers|depth|num_global_layers", 2),
    # widths that must be equal to each other
    (r"hidden_size|d_model|n_embd|emb_dim|embedding_dim|word_embed_proj_dim|out_hidden_size|adapter_out_dim", 96),
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
    (r"index_n_heads|indexer_n_heads", 3),
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
    (r"first_k_dense_replace|num_dense_layers", 1),
    # how far a query looks
    (r"(\w+_)?(sliding_window(_size)?|window_size|local_attention|local_attention_window_len|keep_window_size)", 5),
    (r"attention_chunk_size", 6),
    (r"index_topk|indexer_topk", 4),
    # convolution and state
    (r"(mamba_d_state|ssm_state_size|state_size)", 9),
    (r"(chunk_size|mamba_chunk_size)", 8),
    (r"(mamba_)?(dt_rank|time_step_rank)", 11),
    (r"mamba_d_ssm", 192),
    (r"(mamba_)?n_?groups", 1),
    # positions and prompts
    (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|context_length|model_max_length)", 128),
    (r"max_(source|target)_positions", 128),
    (r"rotary_dim", 8),
    # towers
    (r"image_size", 32),
    (r"patch_size", 8),
)
SIZES = tuple((re.compile(pattern), size) for pattern, size in _SIZES)

# Fields that list the layers they are true of, by index.
INDEX_LISTS = re.compile(r"(hybrid_layer|ple_layer|full_attn)_(ids|idxs)|mlp_only_layers|moe_layers|cross_attention_layers")

# Counts of layers at the end that are of another kind.
SHARED_COUNTS = ("num_kv_shared_layers",)

# Never passed: the class says them itself.
ABSENT = frozenset({"model_type", "transformers_version", "architectures", "dtype", "id2label", "label2id"})

# What the rule cannot know, with the reason.
EXCEPTIONS: dict[str, dict[str, Any]] = {}
