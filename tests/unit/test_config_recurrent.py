"""Recurrent and hybrid decoders as their configs describe them, against sizes worked out by hand."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtally import Attention, Decoder, Experts, InputError, LatentAttention, Layer, Mlp
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.passes import Pass, cached, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term, compare
from kvtally.pure import config_gated_state as gated_state
from kvtally.pure import config_linear_attention as linear_attention
from kvtally.pure import config_looped as looped
from kvtally.pure import config_mamba as mamba
from kvtally.pure import config_short_conv as short_conv
from kvtally.pure.config import read_config, read_facts
from kvtally.pure.count_closed import count
from kvtally.pure.count_executed import execute
from recurrent_parts import BASE, GQA, HEADS, HIDDEN, MLP, gates, of, read

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared"))
CONFIGS, SIZES = SHARED / "facts" / "configs", SHARED / "facts" / "sizes_32768_bf16.json"
FACTS = (
    "Qwen--Qwen3-Next-80B-A3B-Instruct",
    "Qwen--Qwen3.5-122B-A10B",
    "Qwen--Qwen3.5-35B-A3B",
    "Qwen--Qwen3.5-397B-A17B",
    "ibm-granite--granite-4.0-h-small",
    "moonshotai--Kimi-K3",
    "moonshotai--Kimi-Linear-48B-A3B-Instruct",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nvidia--Nemotron-H-56B-Base-8K",
)

# Those that a config of its class defaults alone describes.
DEFAULTS = sorted(
    set(
        {
            **mamba.FAMILIES,
            **linear_attention.FAMILIES,
            **short_conv.FAMILIES,
            **gated_state.FAMILIES,
            **looped.FAMILIES,
        }
    )
    - {"kimi_k3", "minimax_text_01", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "qwen4_exp_text", "lfm2_moe"}
)


def held_in_bytes(decoder: Decoder, context: int) -> int:
    """bf16 for what is cached, float32 for states that are summed into."""
    sums = sum(mixer.recurrent_state for layer in decoder.layers for mixer in layer.mixers)
    return 2 * (decoder.held(context) - sums) + 4 * sums


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="KVTALLY_SHARED has no facts/configs")
@pytest.mark.parametrize("name", FACTS)
def test_public_configs_hold_what_the_facts_say(name: str) -> None:
    decoder = read_config(json.loads((CONFIGS / f"{name}.json").read_text()))
    assert held_in_bytes(decoder, 32_768) == json.loads(SIZES.read_text())[name]


# Mamba: 2 * 24 = 48 channels, 5 state elements each; the rank is 24 / 16 rounded up.
MAMBA = Recurrent(
    matrices=(
        (Term.in_proj, None, 96),
        (Term.x_proj, 48, 2 + 10),
        (Term.dt_proj, 2, 48),
        (Term.out_proj, 48, None),
    ),
    conv_channels=48,
    conv_kernel=4,
    num_heads=48,
    key_dim=5,
)
# Mamba-2: 3 heads of 16 channels; the convolution also runs over B and C of the one group.
MAMBA2 = Recurrent(
    matrices=((Term.in_proj, None, 48 + (48 + 2 * 5) + 3), (Term.out_proj, 48, None)),
    conv_channels=58,
    conv_kernel=4,
    num_heads=3,
    key_dim=5,
    value_dim=16,
)
MAMBA2_FIELDS = {"mamba_n_heads": 3, "mamba_d_state": 5, "mamba_expand": 2}
# Gated delta net: 2 key heads of 5, 4 value heads of 7.
GDN = Recurrent(
    matrices=((Term.in_proj, None, 2 * 10 + 2 * 28 + 2 * 4), (Term.out_proj, 28, None)),
    conv_channels=48,
    conv_kernel=4,
    num_heads=4,
    key_dim=5,
    value_dim=7,
    delta=True,
)
GDN_FIELDS = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 5,
    "linear_value_head_dim": 7,
}
KDA_GATES = ((Term.extra_proj, None, 5), (Term.extra_proj, 5, 15), (Term.extra_proj, None, 3))
KDA = Recurrent(
    matrices=(
        (Term.q_proj, None, 15),
        (Term.k_proj, None, 15),
        (Term.v_proj, None, 15),
        *KDA_GATES,
        (Term.extra_proj, None, 5),
        (Term.extra_proj, 5, 15),
        (Term.o_proj, 15, None),
    ),
    conv_channels=45,
    conv_kernel=4,
    num_heads=3,
    key_dim=5,
    value_dim=5,
    delta=True,
)
MLA = {"kv_lora_rank": 14, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 9, "q_lora_rank": None}
LATENT = LatentAttention(num_heads=4, kv_lora_rank=14, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=9)


def test_mamba() -> None:
    assert read("mamba", num_hidden_layers=2, state_size=5, intermediate_size=48) == of(*(Layer(mixer=MAMBA),) * 2)


def test_mamba2() -> None:
    fields = {"num_heads": 3, "head_dim": 16, "state_size": 5, "n_groups": 1, "num_hidden_layers": 1}
    assert read("mamba2", intermediate_size=None, **fields) == of(Layer(mixer=MAMBA2))


def test_a_state_is_written_and_read_once_a_token_and_its_convolution_keeps_all_taps_but_one() -> None:
    tally = count(of(Layer(mixer=MAMBA2)), cached(3, 2))
    assert tally.by("term")[Term.state_update] == tally.by("term")[Term.state_read] == 4 * 3 * 5 * 16
    assert tally.by("term")[Term.conv1d] == 4 * 58 * 4
    assert of(Layer(mixer=MAMBA2)).held(10**6) == 3 * 58 + 3 * 5 * 16


def test_the_delta_rule_reads_what_it_overwrites() -> None:
    terms = GDN.projections(HIDDEN)
    assert (terms[Term.state_update], terms[Term.state_read]) == (2 * 4 * 5 * 7, 4 * 5 * 7)


def test_falcon_h1_has_attention_and_mamba2_side_by_side() -> None:
    both = Layer(mixer=GQA, beside=(MAMBA2,), mlp=MLP)
    assert read("falcon_h1", num_hidden_layers=1, mamba_d_ssm=48, **HEADS, **MAMBA2_FIELDS) == of(both)


def test_bamba_lists_the_layers_that_attend() -> None:
    fields = {"num_hidden_layers": 3, "attn_layer_indices": [1], **HEADS, **MAMBA2_FIELDS}
    recurrent = Layer(mixer=MAMBA2, mlp=MLP)
    assert read("bamba", **fields) == of(recurrent, Layer(mixer=GQA, mlp=MLP), recurrent)


@pytest.mark.parametrize("words", [["mamba", "attention"], ["linear_attention", "full_attention"]])
def test_granite_in_old_and_new_words(words: list[str]) -> None:
    experts = {"num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 13}
    decoder = read("granitemoehybrid", num_hidden_layers=2, layer_types=words, **HEADS, **MAMBA2_FIELDS, **experts)
    mlp = Experts(num_experts=5, per_token=2, width=34, shared=13)
    assert decoder == of(Layer(mixer=MAMBA2, mlp=mlp), Layer(mixer=GQA, mlp=mlp))


def test_jamba_by_periods_and_offsets() -> None:
    periods = {"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 0}
    sizes = {"mamba_d_state": 5, "num_experts": 5, "num_experts_per_tok": 2, "num_hidden_layers": 3}
    mlp = Experts(num_experts=5, per_token=2, width=34)
    expected = of(Layer(mixer=MAMBA, mlp=mlp), Layer(mixer=GQA, mlp=MLP), Layer(mixer=MAMBA, mlp=mlp))
    assert read("jamba", **periods, **sizes, **HEADS) == expected


NEMOTRON = {
    "mamba_num_heads": 3,
    "mamba_head_dim": 16,
    "ssm_state_size": 5,
    "n_groups": 1,
    "head_dim": 6,
    "n_routed_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "moe_shared_expert_intermediate_size": 13,
}


def test_nemotron_h_has_one_thing_a_layer() -> None:
    experts = Experts(num_experts=5, per_token=2, width=20, shared=13, gated=False, latent=7)
    expected = of(Layer(mixer=MAMBA2), Layer(mlp=Mlp(width=34, gated=False)), Layer(mixer=GQA), Layer(mlp=experts))
    assert read("nemotron_h", hybrid_override_pattern="M-*E", moe_latent_size=7, **HEADS, **NEMOTRON) == expected


def test_zamba_attends_to_hidden_state_and_embedding_together() -> None:
    fields = {"num_attention_heads": 4, "num_key_value_heads": 4, "n_mamba_heads": 2, "mamba_d_state": 5}
    decoder = read("zamba", num_hidden_layers=4, **fields)
    wide = Attention(num_heads=4, num_kv_heads=4, head_dim=12, inputs=48)
    hybrid = Layer(mixer=wide, beside=(MAMBA, gates((None, None))), mlp=MLP)
    assert decoder == of(Layer(mixer=MAMBA), Layer(mixer=MAMBA), hybrid, Layer(mixer=MAMBA))
    assert wide.projections(HIDDEN)[Term.q_proj] == 48 * 4 * 12


def test_zamba2_has_an_adapter_for_each_hybrid_layer() -> None:
    decoder = read(
        "zamba2",
        num_hidden_layers=2,
        layers_block_type=["mamba", "hybrid"],
        num_attention_heads=4,
        n_mamba_heads=3,
        mamba_d_state=5,
        adapter_rank=7,
    )
    wide = Attention(num_heads=4, num_kv_heads=4, head_dim=12, inputs=48)
    beside = (MAMBA2, gates((None, None), (None, 7), (7, 68)))
    assert decoder == of(Layer(mixer=MAMBA2), Layer(mixer=wide, beside=beside, mlp=MLP))


QWEN = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 13}
QWEN_EXPERTS = Experts(num_experts=5, per_token=2, width=20, shared=13, shared_gate=1)
GATED = Attention(num_heads=4, num_kv_heads=2, head_dim=6, gated=True)


def test_qwen3_next_attends_in_every_fourth_layer_with_a_gate_in_q_proj() -> None:
    decoder = read("qwen3_next", num_hidden_layers=4, head_dim=6, mlp_only_layers=[1], **HEADS, **GDN_FIELDS, **QWEN)
    linear, full = Layer(mixer=GDN, mlp=QWEN_EXPERTS), Layer(mixer=GATED, mlp=QWEN_EXPERTS)
    assert decoder == of(linear, Layer(mixer=GDN, mlp=MLP), linear, full)


def test_facts_of_experts_say_nothing_of_layers_without() -> None:
    _, facts = read_facts({"model_type": "qwen3_next", **QWEN, "intermediate_size": 34})
    assert {fact.name: fact.note for fact in facts if fact.note} == {"intermediate_size": "no layer has this MLP"}


def test_qwen3_5_is_read_from_its_text_config() -> None:
    text = {**BASE, "num_hidden_layers": 2, "head_dim": 6, **HEADS, **GDN_FIELDS, "full_attention_interval": 2}
    decoder = read_config({"model_type": "qwen3_5", "text_config": text})
    assert decoder == of(Layer(mixer=GDN, mlp=MLP), Layer(mixer=GATED, mlp=MLP))


def test_qwen4_chooses_blocks_by_the_means_of_their_index_keys() -> None:
    index = {"indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 7, "indexer_compress_ratio": 2}
    fields = {"num_hidden_layers": 2, "head_dim": 6, "hc_count": 2, "hc_lowrank": 5, "full_attention_interval": 2}
    sizes = HEADS | GDN_FIELDS | QWEN | index | {"indexer_budget": 4, "intermediate_size": None}
    decoder = read("qwen4_exp_text", **fields, **sizes)
    streams = gates((48, 5), (5, 48), (48, 2), (48, 5), (5, 48), (48, 2))
    indexer = Indexer(num_heads=3, head_dim=7, weighted=False, ratio=2, averaged=True)
    full = replace(GATED, top_k=3, block=2)
    expected = (
        Layer(mixer=GDN, beside=(streams,), mlp=QWEN_EXPERTS),
        Layer(mixer=full, beside=(indexer, streams), mlp=QWEN_EXPERTS),
    )
    assert decoder == of(*expected, outside=((48, 5), (5, 48)))
    assert decoder.layers[1].held(9) == 9 * 24 + 9 * 7  # a key a token is kept, though one of two is scored
    assert indexer.pairs(Pass(new=5), "dense") == indexer.pairs(Pass(new=5), "causal") == 0 + 1 + 1 + 2 + 2


KIMI = {
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 99,  # of no use to the cache
    "num_experts": 5,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 20,
    **MLA,
}
KIMI_EXPERTS = Experts(num_experts=5, per_token=2, width=20, shared=20)
KIMI_LISTS = {
    "num_heads": 3,
    "head_dim": 5,
    "short_conv_kernel_size": 4,
    "full_attn_layers": [2],
    "kda_layers": [1, 3],
}


def test_kimi_linear_counts_layers_from_one() -> None:
    decoder = read("kimi_linear", num_hidden_layers=3, linear_attn_config=KIMI_LISTS, **KIMI)
    expected = of(Layer(mixer=KDA, mlp=MLP), Layer(mixer=LATENT, mlp=KIMI_EXPERTS), Layer(mixer=KDA, mlp=KIMI_EXPERTS))
    assert decoder == expected
    assert KDA.state == 3 * 3 * 15 + 3 * 5 * 5


def test_kimi_linear_refuses_layers_that_no_list_has() -> None:
    lists = KIMI_LISTS | {"kda_layers": [0, 1]}
    with pytest.raises(InputError, match="kda_layers"):
        read("kimi_linear", num_hidden_layers=3, linear_attn_config=lists, **KIMI)


def test_minimax_text_01_has_a_list_of_zeros_and_ones() -> None:
    fields = {"num_hidden_layers": 2, "head_dim": 5, "attn_type_list": [0, 1], **HEADS}
    decoder = read("minimax_text_01", num_local_experts=5, num_experts_per_tok=2, **fields)
    mlp = Experts(num_experts=5, per_token=2, width=34)
    full = Attention(num_heads=4, num_kv_heads=2, head_dim=5)
    assert decoder.layers[1] == Layer(mixer=full, mlp=mlp)
    assert decoder.layers[0].held(999) == 4 * 5 * 5  # no convolution, and nothing that grows
    terms = decoder.layers[0].projections(HIDDEN)
    assert [terms[t] for t in (Term.q_proj, Term.k_proj, Term.extra_proj)] == [HIDDEN * 20] * 3


def test_minimax_text_01_at_its_size() -> None:
    config = {
        "model_type": "minimax_text_01",
        "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
        "head_dim": 128,
        "hidden_size": 6144,
        "intermediate_size": 9216,
        "layernorm_linear_attention_alpha": 3.55,
        "num_attention_heads": 64,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "shared_intermediate_size": 0,
        "shared_moe_mode": "sigmoid",
        "sliding_window": None,
        "vocab_size": 200_064,
    }
    decoder = read_config(config)
    assert decoder.held(1000) == 10 * 1000 * 2 * 8 * 128 + 70 * 64 * 128 * 128


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_every_architecture_shrinks_and_costs_what_it_takes(model_type: str) -> None:
    decoder = read_config({"model_type": model_type}).shrunk()
    passes = (*cached(4, 2), *uncached(2, 2))
    assert compare(count(decoder, passes), execute(decoder, passes).tally).agree


@pytest.mark.parametrize(
    ("model_type", "fields", "said"),
    [
        ("mamba", {"num_hidden_layers": 2, "intermediate_size": 50}, "expand"),
        ("falcon_h1", {"mamba_d_head": 7, **MAMBA2_FIELDS, **HEADS}, "mamba_d_head"),
        ("jamba", {"attn_layer_offset": 8, **HEADS}, "attn_layer_offset"),
        ("nemotron_h", {"hybrid_override_pattern": "M?", **HEADS, **NEMOTRON}, r"`\?` at 1"),
        ("nemotron_h", {"hybrid_override_pattern": "M*", "num_hidden_layers": 3, **HEADS, **NEMOTRON}, "expected 2"),
        ("qwen3_next", {"layer_types": ["mega"], "num_hidden_layers": 1, **HEADS, **GDN_FIELDS}, "mega"),
        ("qwen3_5_text", {"linear_num_key_heads": 3, **HEADS}, "linear_num_key_heads"),
        ("minimax_text_01", {"num_hidden_layers": 2, "attn_type_list": [0], **HEADS}, "attn_type_list"),
        ("zamba2", {"num_hidden_layers": 3, **HEADS}, "layers_block_type"),
        ("hrm_text", {"num_layers_per_stack": 2, "num_hidden_layers": 9, "num_attention_heads": 4}, "expected 16"),
    ],
)  # fmt: skip
def test_contradictions_are_named(model_type: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(model_type, **fields)
