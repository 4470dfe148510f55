"""Tiny models of every family, each with its Decoder written down by hand; nothing in them is square."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from kvtally import Attention, CrossAttention, Decoder, Experts, LatentAttention, Layer, Mlp
from kvtally.live import build

HIDDEN, VOCAB, SOURCE, WINDOW = 24, 61, 7, 5


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """A config as a model's own repository would have it, and what we say it is."""

    config: dict[str, Any]
    decoder: Decoder
    kinds: tuple[str, ...] = ("sdpa", "eager")
    experts: tuple[str | None, ...] = (None,)


def decoder(*layers: Layer, hidden: int = HIDDEN) -> Decoder:
    return Decoder(hidden_size=hidden, vocab_size=VOCAB, layers=layers)


GQA = Attention(num_heads=4, num_kv_heads=2, head_dim=10)
SLIDING = replace(GQA, window=WINDOW)
MLP = Mlp(width=34)

BASE = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 34,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
TYPES = ["sliding_attention", "full_attention"]
MIXED = decoder(Layer(mixer=SLIDING, mlp=MLP), Layer(mixer=GQA, mlp=MLP))


def of(model_type: str, **fields: Any) -> dict[str, Any]:
    """The common fields with those of one family over them; None takes a field away."""
    return {k: v for k, v in ({"model_type": model_type} | BASE | fields).items() if v is not None}


def two(layer: Layer, hidden: int = HIDDEN) -> Decoder:
    return decoder(layer, layer, hidden=hidden)


# Heads times head_dim is the hidden size in these families, whatever a config says.
HEADS_OF_6 = Attention(num_heads=4, num_kv_heads=4, head_dim=6)

LATENT = LatentAttention(
    num_heads=4, kv_lora_rank=14, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=9, q_lora_rank=11
)
DEEPSEEK = of(
    "deepseek_v3",
    head_dim=None,
    num_key_value_heads=4,
    kv_lora_rank=14,
    q_lora_rank=11,
    qk_rope_head_dim=4,
    qk_nope_head_dim=6,
    v_head_dim=9,
    n_routed_experts=8,
    num_experts_per_tok=3,
    n_shared_experts=2,
    moe_intermediate_size=20,
    n_group=2,
    topk_group=1,
    first_k_dense_replace=1,
)
DEEPSEEK_EXPERTS = Experts(num_experts=8, per_token=3, width=20, shared=40)

WHISPER_CROSS = CrossAttention(num_heads=4, num_kv_heads=4, head_dim=6, source=SOURCE)
WHISPER = {
    "model_type": "whisper",
    "vocab_size": VOCAB,
    "d_model": HIDDEN,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 18,
    "decoder_ffn_dim": 34,
    "max_source_positions": SOURCE,
    "max_target_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "decoder_start_token_id": 2,
}
T5_CROSS = CrossAttention(num_heads=3, num_kv_heads=3, head_dim=10, source=SOURCE)
T5 = {
    "model_type": "t5",
    "vocab_size": VOCAB,
    "d_model": HIDDEN,
    "d_kv": 10,
    "d_ff": 34,
    "num_heads": 3,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "tie_word_embeddings": False,
}
T5_SELF = Attention(num_heads=3, num_kv_heads=3, head_dim=10)
FALCON = {"num_key_value_heads": None, "head_dim": None, "ffn_hidden_size": 34, "alibi": False}
GPT2 = {"n_embd": HIDDEN, "n_head": 4, "n_layer": 2, "n_inner": 34, "n_positions": 64}
MOE = {"num_experts_per_tok": 2, "num_hidden_layers": 2}
EXPERTS = Experts(num_experts=5, per_token=2, width=20)
ALL_EXPERTS = ("grouped_mm", "batched_mm", "eager")

FAMILIES: dict[str, Tiny] = {
    "llama": Tiny(config=of("llama"), decoder=two(Layer(mixer=GQA, mlp=MLP))),
    "mistral": Tiny(config=of("mistral", sliding_window=WINDOW), decoder=two(Layer(mixer=SLIDING, mlp=MLP))),
    "qwen2": Tiny(
        config=of("qwen2", use_sliding_window=True, sliding_window=WINDOW, layer_types=TYPES[::-1]),
        decoder=decoder(Layer(mixer=GQA, mlp=MLP), Layer(mixer=SLIDING, mlp=MLP)),
    ),
    "qwen3": Tiny(config=of("qwen3"), decoder=two(Layer(mixer=GQA, mlp=MLP))),
    "gemma2": Tiny(
        config=of("gemma2", sliding_window=WINDOW, layer_types=TYPES),
        decoder=MIXED,
        kinds=("eager",),  # its capped scores have no sdpa
    ),
    "gemma3": Tiny(config=of("gemma3_text", sliding_window=WINDOW, layer_types=TYPES), decoder=MIXED),
    "gpt2": Tiny(
        config=GPT2 | {"model_type": "gpt2", "vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 1},
        decoder=two(Layer(mixer=HEADS_OF_6, mlp=Mlp(width=34, gated=False))),
    ),
    "gpt_neox": Tiny(
        config=of("gpt_neox", head_dim=None, num_key_value_heads=None),
        decoder=two(Layer(mixer=HEADS_OF_6, mlp=Mlp(width=34, gated=False))),
    ),
    "falcon_mqa": Tiny(
        config=of("falcon", **FALCON, multi_query=True, new_decoder_architecture=False),
        decoder=two(Layer(mixer=replace(HEADS_OF_6, num_kv_heads=1), mlp=Mlp(width=34, gated=False))),
    ),
    "falcon_mha": Tiny(
        config=of("falcon", **FALCON, multi_query=False, new_decoder_architecture=False),
        decoder=two(Layer(mixer=HEADS_OF_6, mlp=Mlp(width=34, gated=False))),
    ),
    "mixtral": Tiny(
        config=of("mixtral", num_local_experts=5, intermediate_size=20, sliding_window=None, **MOE),
        decoder=two(Layer(mixer=GQA, mlp=EXPERTS)),
        experts=ALL_EXPERTS,
    ),
    "qwen3_moe": Tiny(
        config=of("qwen3_moe", num_experts=5, moe_intermediate_size=20, mlp_only_layers=[1], **MOE),
        decoder=decoder(Layer(mixer=GQA, mlp=EXPERTS), Layer(mixer=GQA, mlp=MLP)),
        experts=ALL_EXPERTS,
    ),
    "gpt_oss": Tiny(
        config=of(
            "gpt_oss", num_local_experts=5, intermediate_size=20, sliding_window=WINDOW, layer_types=TYPES, **MOE
        ),
        decoder=decoder(Layer(mixer=SLIDING, mlp=EXPERTS), Layer(mixer=GQA, mlp=EXPERTS)),
        kinds=("eager",),  # its attention sinks have no sdpa
        experts=ALL_EXPERTS,
    ),
    "deepseek_v3": Tiny(
        config=DEEPSEEK,
        decoder=decoder(Layer(mixer=LATENT, mlp=MLP), Layer(mixer=LATENT, mlp=DEEPSEEK_EXPERTS)),
        experts=ALL_EXPERTS,
    ),
    "deepseek_v3_without_q_lora": Tiny(
        config=DEEPSEEK | {"q_lora_rank": None},
        decoder=decoder(
            Layer(mixer=replace(LATENT, q_lora_rank=None), mlp=MLP),
            Layer(mixer=replace(LATENT, q_lora_rank=None), mlp=DEEPSEEK_EXPERTS),
        ),
    ),
    "whisper": Tiny(
        config=WHISPER,
        decoder=two(Layer(mixer=HEADS_OF_6, mlp=Mlp(width=34, gated=False), cross=WHISPER_CROSS)),
    ),
    "t5": Tiny(
        config=T5 | {"feed_forward_proj": "relu"},
        decoder=two(Layer(mixer=T5_SELF, mlp=Mlp(width=34, gated=False), cross=T5_CROSS)),
    ),
    "t5_gated": Tiny(
        config=T5 | {"feed_forward_proj": "gated-gelu"},
        decoder=two(Layer(mixer=T5_SELF, mlp=MLP, cross=T5_CROSS)),
    ),
}

# Stores each K and V once a query head; see the test that says so.
FALCON_NEW = Tiny(
    config=of("falcon", **FALCON, new_decoder_architecture=True, num_kv_heads=2, multi_query=False),
    decoder=two(Layer(mixer=replace(HEADS_OF_6, num_kv_heads=2), mlp=Mlp(width=34, gated=False))),
)


@cache
def model(family: str, attention: str, experts: str | None = None) -> Any:
    """A real transformers model of the family with random weights, the same in every run."""
    tiny = FALCON_NEW if family == "falcon_new" else FAMILIES[family]
    return build(tiny.config, device="cpu", attention=attention, experts=experts)
