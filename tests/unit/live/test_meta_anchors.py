"""Real sizes without memory: models of up to 671B traced on the meta device, every position's logits made.

The config facts are typed from the models' own config.json by hand, here and in the Decoder beside
each. Source of the totals at 256 tokens: traced on the meta device. GPT-2's forward FLOPs at 1,024
tokens: nanoGPT, transformer_sizing.ipynb (github.com/karpathy/nanoGPT).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import kvtally
from kvtally import Attention, Decoder, Experts, LatentAttention, Layer, Mlp, Pass
from kvtally.live import build, trace


class Anchor(NamedTuple):
    config: dict[str, Any]
    decoder: Decoder
    tokens: int
    macs: int


MIXTRAL = Anchor(
    {
        "model_type": "mixtral",
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    Decoder(
        hidden_size=4096,
        vocab_size=32000,
        layers=(
            Layer(
                mixer=Attention(num_heads=32, num_kv_heads=8, head_dim=128),
                mlp=Experts(num_experts=8, per_token=2, width=14336),
            ),
        )
        * 32,
    ),
    256,
    3_280_818_143_232,
)
QWEN3_MOE = Anchor(
    {
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    Decoder(
        hidden_size=2048,
        vocab_size=151936,
        layers=(
            Layer(
                mixer=Attention(num_heads=32, num_kv_heads=4, head_dim=128),
                mlp=Experts(num_experts=128, per_token=8, width=768),
            ),
        )
        * 48,
    ),
    256,
    804_433_952_768,
)
GPT_OSS_EXPERTS = Experts(num_experts=32, per_token=4, width=2880)
GPT_OSS = Anchor(
    {
        "model_type": "gpt_oss",
        "vocab_size": 201088,
        "hidden_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
    },
    Decoder(
        hidden_size=2880,
        vocab_size=201088,
        layers=(
            Layer(mixer=Attention(num_heads=64, num_kv_heads=8, head_dim=64, window=128), mlp=GPT_OSS_EXPERTS),
            Layer(mixer=Attention(num_heads=64, num_kv_heads=8, head_dim=64), mlp=GPT_OSS_EXPERTS),
        )
        * 12,
    ),
    256,
    936_313_356_288,
)
LATENT = LatentAttention(
    num_heads=128, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536
)
DEEPSEEK = Anchor(
    {
        "model_type": "deepseek_v3",
        "vocab_size": 129280,
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "n_group": 8,
        "topk_group": 4,
    },
    Decoder(
        hidden_size=7168,
        vocab_size=129280,
        layers=(Layer(mixer=LATENT, mlp=Mlp(width=18432)),) * 3
        + (Layer(mixer=LATENT, mlp=Experts(num_experts=256, per_token=8, width=2048, shared=2048)),) * 58,
    ),
    256,
    9_539_642_458_112,
)
GPT2 = Anchor(
    {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024},
    Decoder(
        hidden_size=768,
        vocab_size=50257,
        layers=(
            Layer(
                mixer=Attention(num_heads=12, num_kv_heads=12, head_dim=64),
                mlp=Mlp(width=3072, gated=False),
            ),
        )
        * 12,
    ),
    1024,
    291_648_307_200 // 2,
)
ANCHORS = {"mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE, "gpt_oss": GPT_OSS, "deepseek_v3": DEEPSEEK, "gpt2": GPT2}


@pytest.mark.parametrize(
    ("name", "experts"), [(n, e) for n in ANCHORS for e in (None, "grouped_mm") if n != "gpt2" or e is None]
)
def test_published_totals_by_formula_and_by_trace(name: str, experts: str | None) -> None:
    """Both ways transformers has of running experts on shapes alone; grouped_mm has none but bfloat16."""
    anchor = ANCHORS[name]
    passes = [Pass(new=anchor.tokens, logits=anchor.tokens)]
    closed = kvtally.count(anchor.decoder, passes, kernel="dense")
    assert closed.total == anchor.macs
    traced = trace(build(anchor.config, dtype="bfloat16", experts=experts), passes, anchor.decoder)
    assert kvtally.compare(closed, traced).agree
    assert traced.total == anchor.macs


def test_a_decode_step_of_671_billion_parameters_expands_every_latent_again() -> None:
    passes = kvtally.cached(300, 3)
    traced = trace(build(DEEPSEEK.config), passes, DEEPSEEK.decoder)
    assert kvtally.compare(kvtally.count(DEEPSEEK.decoder, passes, kernel="dense"), traced).agree
    assert traced.macs["decode", 0, kvtally.Term.kv_b_proj] == (301 + 302) * 512 * 128 * (128 + 128)
