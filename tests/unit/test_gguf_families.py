"""GGUF metadata as converters write it reads as the same decoder as the config it was converted from.

Keys are those that llama.cpp's own converter writes for the model_type, the sizes small and unlike each other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtally import Attention, Decoder, Layer, Mlp
from kvtally.core.errors import InputError
from kvtally.core.mlp import Experts
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config
from kvtally.pure.gguf import read_gguf, read_gguf_facts

gguf = pytest.importorskip("gguf", reason="needs the gguf package to write files")

LAYERS = 8
WINDOW = "attention.sliding_window"
KEYS = {
    "block_count": LAYERS, "embedding_length": 24, "feed_forward_length": 40, "attention.head_count": 6,
    "attention.head_count_kv": 2, "vocab_size": 31,
}  # fmt: skip
CONFIG = {
    "num_hidden_layers": LAYERS, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 31,
}  # fmt: skip
WIDE, WIDE_CONFIG = {"attention.key_length": 9, "attention.value_length": 9}, {"head_dim": 9}
EXPERTS = {"expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 7}
SHARED = {"expert_shared_count": 3, "leading_dense_block_count": 2}
TURNS = [0, 0, 2, 0, 0, 0, 2, 0]  # KV heads of a hybrid: attention in layers 2 and 6
KINDS = ["full_attention" if kv else "linear_attention" for kv in TURNS]
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 48, "ssm.state_size": 5, "ssm.time_step_rank": 8, "ssm.group_count": 2}
MAMBA2 = {"mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 6, "mamba_n_groups": 2, "mamba_d_state": 5,
          "mamba_d_conv": 4}  # fmt: skip
NET = {"linear_num_value_heads": 8, "linear_value_head_dim": 6, "linear_num_key_heads": 2, "linear_key_head_dim": 5,
       "linear_conv_kernel_dim": 4}  # fmt: skip
LATENT = {"attention.kv_lora_rank": 10, "rope.dimension_count": 2, "attention.key_length": 12,
          "attention.value_length": 10, "attention.key_length_mla": 7, "attention.value_length_mla": 3,
          "attention.head_count_kv": 1}  # fmt: skip
LATENT_CONFIG = {"kv_lora_rank": 10, "qk_rope_head_dim": 2, "qk_nope_head_dim": 5, "v_head_dim": 3}


def without(keys: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key not in names}


MOE = without(CONFIG, "intermediate_size") | {"num_experts_per_tok": 2, "moe_intermediate_size": 7}
NO_KV = without(CONFIG, "num_key_value_heads")
GPT = {"num_hidden_layers": LAYERS, "hidden_size": 24, "num_attention_heads": 6, "vocab_size": 31}

# arch, what the file says besides KEYS, and the config
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {}, CONFIG),
    "mistral": ("llama", {}, CONFIG | {"sliding_window": None}),
    "mixtral": ("llama", {"expert_count": 5, "expert_used_count": 2},
                CONFIG | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("qwen2", {}, CONFIG),
    "qwen2_moe": ("qwen2moe", EXPERTS | {"expert_shared_feed_forward_length": 11},
                  MOE | {"num_experts": 5, "shared_expert_intermediate_size": 11, "intermediate_size": 40}),
    "qwen3": ("qwen3", WIDE, CONFIG | WIDE_CONFIG),
    "qwen3_moe": ("qwen3moe", EXPERTS | WIDE, MOE | WIDE_CONFIG | {"num_experts": 5}),
    "gemma": ("gemma", WIDE, CONFIG | WIDE_CONFIG),
    "gemma2": ("gemma2", WIDE | {"attention.sliding_window": 11}, CONFIG | WIDE_CONFIG | {"sliding_window": 11}),
    "gemma3_text": ("gemma3", WIDE | {"attention.sliding_window": 11}, CONFIG | WIDE_CONFIG | {"sliding_window": 11}),
    "cohere": ("command-r", {}, CONFIG),
    "cohere2": ("cohere2", {"attention.sliding_window": 11}, CONFIG | {"sliding_window": 11}),
    "gpt2": ("gpt2", {"attention.head_count_kv": 6, "feed_forward_length": 96},
             {"n_layer": LAYERS, "n_embd": 24, "n_head": 6, "vocab_size": 31}),
    "gpt_neox": ("gptneox", {"attention.head_count_kv": 6}, NO_KV),
    "falcon": ("falcon", {"attention.head_count_kv": 1, "feed_forward_length": 96}, GPT | {"multi_query": True}),
    "bloom": ("bloom", {"attention.head_count_kv": 6, "feed_forward_length": 96},
              {"n_layer": LAYERS, "hidden_size": 24, "n_head": 6, "vocab_size": 31}),
    "phi": ("phi2", {"attention.head_count_kv": 6}, NO_KV),
    "phi3": ("phi3", {}, CONFIG | {"sliding_window": None}),
    "starcoder2": ("starcoder2", {}, CONFIG | {"sliding_window": None}),
    "stablelm": ("stablelm", {}, CONFIG),
    "nemotron": ("nemotron", {}, CONFIG | {"head_dim": 4}),
    "olmo2": ("olmo2", {}, CONFIG),
    "olmo3": ("olmo2", {"attention.sliding_window": 11}, CONFIG | {"sliding_window": 11}),
    "olmoe": ("olmoe", {"expert_count": 5, "expert_used_count": 2},
              CONFIG | {"num_experts": 5, "num_experts_per_tok": 2}),
    "gpt_oss": ("gpt-oss", EXPERTS | WIDE | {"attention.sliding_window": 11, "feed_forward_length": 7},
                CONFIG | WIDE_CONFIG | {"intermediate_size": 7, "num_local_experts": 5, "num_experts_per_tok": 2,
                                        "sliding_window": 11}),
    "granite": ("granite", {}, CONFIG),
    "granitemoeshared": ("granitemoe", {"expert_count": 5, "expert_used_count": 2, "feed_forward_length": 7,
                                        "expert_shared_feed_forward_length": 11},
                         CONFIG | {"intermediate_size": 7, "num_local_experts": 5, "num_experts_per_tok": 2,
                                   "shared_intermediate_size": 11}),
    "smollm3": ("smollm3", {}, CONFIG | {"no_rope_layer_interval": 4}),
    "exaone4": ("exaone4", {}, CONFIG | {"sliding_window": None}),
    "glm4_moe": ("glm4moe", EXPERTS | SHARED | WIDE | {"nextn_predict_layers": 1, "block_count": LAYERS + 1},
                 MOE | WIDE_CONFIG | {"n_routed_experts": 5, "n_shared_experts": 3, "first_k_dense_replace": 2,
                                      "intermediate_size": 40, "num_nextn_predict_layers": 1}),
    "minimax_m2": ("minimax-m2", EXPERTS | WIDE | {"feed_forward_length": 7},
                   CONFIG | WIDE_CONFIG | {"intermediate_size": 7, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "afmoe": ("afmoe", EXPERTS | SHARED | WIDE | {"attention.sliding_window": 11},
              MOE | WIDE_CONFIG | {"num_experts": 5, "num_shared_experts": 3, "num_dense_layers": 2,
                                   "intermediate_size": 40, "sliding_window": 11}),
    "deepseek_v3": ("deepseek2", LATENT | EXPERTS | SHARED | {"attention.q_lora_rank": 8},
                    MOE | LATENT_CONFIG | {"q_lora_rank": 8, "n_routed_experts": 5, "n_shared_experts": 3,
                                           "first_k_dense_replace": 2, "intermediate_size": 40,
                                           "num_key_value_heads": 6}),
    "mamba": ("mamba", {"feed_forward_length": 0, "attention.head_count": 0, "attention.head_count_kv": 0,
                        "ssm.conv_kernel": 4, "ssm.inner_size": 48, "ssm.state_size": 5, "ssm.time_step_rank": 3},
              {"num_hidden_layers": LAYERS, "hidden_size": 24, "vocab_size": 31, "expand": 2, "state_size": 5,
               "conv_kernel": 4, "time_step_rank": 3}),
    "mamba2": ("mamba2", SSM | {"feed_forward_length": 0, "attention.head_count": 0, "attention.head_count_kv": 0},
               {"num_hidden_layers": LAYERS, "hidden_size": 24, "vocab_size": 31, "expand": 2, "num_heads": 8,
                "head_dim": 6, "n_groups": 2, "state_size": 5, "conv_kernel": 4}),
    "granitemoehybrid": ("granitehybrid", SSM | {"attention.head_count_kv": TURNS, "expert_count": 5,
                                                 "expert_used_count": 2, "feed_forward_length": 7,
                                                 "expert_shared_feed_forward_length": 11},
                         CONFIG | MAMBA2 | {"layer_types": KINDS, "num_local_experts": 5, "num_experts_per_tok": 2,
                                            "intermediate_size": 7, "shared_intermediate_size": 11}),
    "falcon_h1": ("falcon-h1", SSM, CONFIG | without(MAMBA2, "mamba_expand") | {"mamba_d_ssm": 48}),
    "lfm2": ("lfm2", {"attention.head_count_kv": TURNS, "shortconv.l_cache": 3},
             CONFIG | {"conv_L_cache": 3, "block_auto_adjust_ff_dim": False,
                       "layer_types": ["full_attention" if kv else "conv" for kv in TURNS]}),
    "qwen3_next": ("qwen3next", SSM | EXPERTS | WIDE | {"expert_shared_feed_forward_length": 11},
                   MOE | NET | WIDE_CONFIG | {"num_experts": 5, "shared_expert_intermediate_size": 11}),
    "kimi_linear": ("kimi-linear", LATENT | EXPERTS | SHARED | {
        "attention.head_count_kv": [int(kv > 0) for kv in TURNS], "ssm.conv_kernel": 4, "kda.head_dim": 5,
        "leading_dense_block_count": 1},
        MOE | LATENT_CONFIG | {"num_experts": 5, "n_shared_experts": 3, "first_k_dense_replace": 1,
                               "intermediate_size": 40, "linear_attn_config": {
                                   "full_attn_layers": [3, 7], "kda_layers": [1, 2, 4, 5, 6, 8], "num_heads": 6,
                                   "head_dim": 5, "short_conv_kernel_size": 4}}),
    "gemma3n_text": ("gemma3n", WIDE | {"block_count": 25, "attention.sliding_window": 11, "altup.num_inputs": 4,
                                        "altup.active_idx": 0, "embedding_length_per_layer_input": 5,
                                        "feed_forward_length": [40] * 25},
                     CONFIG | WIDE_CONFIG | {"num_hidden_layers": 25, "sliding_window": 11, "altup_num_inputs": 4,
                                             "hidden_size_per_layer_input": 5, "laurel_rank": 64,
                                             "num_kv_shared_layers": 5, "activation_sparsity_pattern": None}),
    "llama4_text": ("llama4", EXPERTS | WIDE | {"interleave_moe_layer_step": 2, "attention.sliding_window": 8192},
                    CONFIG | WIDE_CONFIG | {"intermediate_size": 7, "intermediate_size_mlp": 40,
                                            "num_local_experts": 5, "num_experts_per_tok": 2,
                                            "interleave_moe_layer_step": 2, "attention_chunk_size": 8192}),
}  # fmt: skip


def written(path: Path, arch: str, keys: dict[str, Any], tensors: tuple[str, ...] = ()) -> Path:
    """A GGUF file of metadata alone, and of tensors that hold one number each."""
    import numpy as np

    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_array(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)
    for name in tensors:
        writer.add_tensor(name, np.zeros(1, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def as_llama_cpp_runs_it(decoder: Decoder) -> Decoder:
    """The decoder without what only transformers does more: experts run that were not chosen."""
    layers = tuple(
        replace(layer, mlp=replace(layer.mlp, all_run=False)) if isinstance(layer.mlp, Experts) else layer
        for layer in decoder.layers
    )
    return replace(decoder, layers=layers)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_file_reads_as_the_config_it_was_made_from(model_type: str, tmp_path: Path) -> None:
    arch, keys, config = FAMILIES[model_type]
    found = read_gguf(written(tmp_path / "small.gguf", arch, KEYS | keys))
    assert found == as_llama_cpp_runs_it(read_config({"model_type": model_type} | config))


def test_phi3_slides_in_transformers_and_not_in_llama_cpp(tmp_path: Path) -> None:
    """A documented difference: llama.cpp reads the window, warns, and caches everything."""
    path = written(tmp_path / "phi3.gguf", "phi3", KEYS | {"attention.sliding_window": 11})
    decoder, facts = read_gguf_facts(path)
    slides = read_config(CONFIG | {"model_type": "phi3", "sliding_window": 11})
    assert (decoder.held(100), slides.held(100)) == (LAYERS * 100 * 16, LAYERS * 11 * 16)  # 2 heads of 4, K and V
    (window,) = (fact for fact in facts if fact.name == "attention.sliding_window")
    assert window.note == "llama.cpp slides in no layer of arch phi3, and caches everything"


def test_what_is_built_into_llama_cpp_is_named_so(tmp_path: Path) -> None:
    _, facts = read_gguf_facts(written(tmp_path / "g.gguf", "gemma3", KEYS | {"attention.sliding_window": 11}))
    sources = {fact.name: fact.source for fact in facts}
    assert sources["attention.sliding_window_pattern"] == "hard-coded for arch gemma3"
    assert sources["attention.sliding_window"] == "gemma3.attention.sliding_window"
    assert sources["expert_count"] == "llama.cpp default"
    assert sources["attention.key_length"] == "embedding_length / attention.head_count"


def test_exaone4_slides_in_its_model_of_64_layers_only(tmp_path: Path) -> None:
    slides = [True, True, True, False]
    keys = {"attention.sliding_window": 11, "attention.sliding_window_pattern": slides * 16}
    path = written(tmp_path / "e.gguf", "exaone4", KEYS | {"block_count": 64} | keys)
    config = CONFIG | {"model_type": "exaone4", "sliding_window": 11, "sliding_window_pattern": 4}
    assert read_gguf(path) == read_config(config | {"num_hidden_layers": 64})
    path = written(tmp_path / "e.gguf", "exaone4", KEYS | keys)
    assert read_gguf(path) == read_config(config | {"sliding_window": None})


def test_jamba_names_its_layers_of_experts_by_its_tensors(tmp_path: Path) -> None:
    keys = KEYS | without(SSM, "ssm.group_count") | {"attention.head_count_kv": TURNS, "expert_count": 5,
                                                     "expert_used_count": 2}  # fmt: skip
    names = tuple(f"blk.{index}.ffn_gate_inp.weight" for index in range(1, LAYERS, 2))
    config = CONFIG | {
        "model_type": "jamba", "num_experts": 5, "num_experts_per_tok": 2, "attn_layer_period": 4,
        "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_expand": 2,
        "mamba_d_state": 5, "mamba_d_conv": 4, "mamba_dt_rank": 8,
    }  # fmt: skip
    assert read_gguf(written(tmp_path / "jamba.gguf", "jamba", keys, names)) == read_config(config)


def test_gemma4_names_its_layers_without_v_by_its_tensors(tmp_path: Path) -> None:
    """26B-A4B in small: full layers have heads of their own size, and K is V; experts beside a dense MLP."""
    slides = [True, True, True, False] * 2
    keys = KEYS | EXPERTS | {
        "attention.sliding_window": 11, "attention.sliding_window_pattern": slides, "attention.key_length": 10,
        "attention.value_length": 10, "attention.key_length_swa": 5, "attention.value_length_swa": 5,
        "attention.head_count_kv": [3 if slide else 2 for slide in slides], "embedding_length_per_layer_input": 0,
    }  # fmt: skip
    config = MOE | {
        "model_type": "gemma4_text", "intermediate_size": 40, "enable_moe_block": True, "num_experts": 5,
        "top_k_experts": 2, "attention_k_eq_v": True, "global_head_dim": 10, "head_dim": 5, "num_key_value_heads": 3,
        "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
        "sliding_window": 11, "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides],
    }  # fmt: skip
    config = without(config, "num_experts_per_tok")
    names = tuple(f"blk.{index}.attn_v.weight" for index, slide in enumerate(slides) if slide)
    assert read_gguf(written(tmp_path / "gemma.gguf", "gemma4", keys, names)) == read_config(config)


def test_gemma4_shares_k_and_v_and_has_an_input_for_each_layer(tmp_path: Path) -> None:
    slides = [True, False] * 4
    keys = KEYS | {
        "attention.sliding_window": 11, "attention.sliding_window_pattern": slides, "attention.key_length": 10,
        "attention.value_length": 10, "attention.key_length_swa": 5, "attention.value_length_swa": 5,
        "attention.shared_kv_layers": 4, "embedding_length_per_layer_input": 3,
        "feed_forward_length": [40] * 4 + [80] * 4,
    }  # fmt: skip
    config = CONFIG | {
        "model_type": "gemma4_text", "global_head_dim": 10, "head_dim": 5, "hidden_size_per_layer_input": 3,
        "num_kv_shared_layers": 4, "use_double_wide_mlp": True, "sliding_window": 11, "attention_k_eq_v": False,
        "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides],
    }  # fmt: skip
    names = tuple(f"blk.{index}.attn_v.weight" for index in range(LAYERS))
    assert read_gguf(written(tmp_path / "gemma.gguf", "gemma4", keys, names)) == read_config(config)


def test_mimo2_names_its_layers_of_experts_by_its_tensors(tmp_path: Path) -> None:
    slides = [False, *[True] * 4, False, True, True]
    keys = KEYS | EXPERTS | {
        "attention.key_length": 9, "attention.value_length": 7, "attention.sliding_window": 11,
        "attention.head_count": 8, "attention.head_count_kv": [4 if slide else 2 for slide in slides],
        "attention.sliding_window_pattern": slides, "nextn_predict_layers": 1, "block_count": LAYERS + 1,
    }  # fmt: skip
    keys["attention.head_count_kv"].append(4)
    keys["attention.sliding_window_pattern"].append(True)
    names = tuple(f"blk.{index}.ffn_gate_inp.weight" for index in range(1, LAYERS))
    config = MOE | {
        "model_type": "mimo_v2_flash", "num_attention_heads": 8, "head_dim": 9, "v_head_dim": 7, "n_routed_experts": 5,
        "intermediate_size": 40, "sliding_window": 11,
        "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides[:LAYERS]],
    }  # fmt: skip
    assert read_gguf(written(tmp_path / "mimo.gguf", "mimo2", keys, names)) == read_config(config)


@pytest.mark.parametrize("arch", ["mimo2", "gemma4"])
def test_windows_that_only_the_file_could_list_are_refused_where_it_does_not(arch: str, tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", arch, KEYS | {"attention.sliding_window": 11})
    with pytest.raises(
        InputError, match=rf"`{arch}\.attention\.sliding_window_pattern` is missing, expected a boolean"
    ):
        read_gguf(path)


def test_nemotron_h_has_one_part_a_layer(tmp_path: Path) -> None:
    keys = KEYS | SSM | {"attention.head_count_kv": TURNS, "feed_forward_length": [0, 9, 0, 0, 9, 0, 0, 9]}
    config = without(CONFIG, "num_hidden_layers") | {
        "model_type": "nemotron_h", "hybrid_override_pattern": "M-*M-M*-", "intermediate_size": 9,
        "mamba_num_heads": 8, "mamba_head_dim": 6, "n_groups": 2, "ssm_state_size": 5, "conv_kernel": 4, "head_dim": 4,
        "expand": 2,
    }  # fmt: skip
    assert read_gguf(written(tmp_path / "n.gguf", "nemotron_h", keys)) == read_config(config)


def test_lfm2_by_hand(tmp_path: Path) -> None:
    """A short convolution: 3 * 24 in, 2 earlier columns of 24 channels held; attention caches 2 * 2 * 4 a token."""
    keys = KEYS | {"attention.head_count_kv": TURNS, "shortconv.l_cache": 3}
    decoder = read_gguf(written(tmp_path / "lfm.gguf", "lfm2", keys))
    conv = Recurrent(matrices=((Term.in_proj, None, 72), (Term.out_proj, None, None)), conv_channels=24, conv_kernel=3)
    assert decoder.layers[0] == Layer(mixer=conv, mlp=Mlp(width=40))
    assert decoder.held(10) == 6 * 2 * 24 + 2 * 10 * 16


def test_qwen_counts_gate_and_up_together(tmp_path: Path) -> None:
    decoder = read_gguf(written(tmp_path / "q.gguf", "qwen", without(KEYS, "attention.head_count_kv")))
    assert [layer.mlp for layer in decoder.layers] == [Mlp(width=20)] * LAYERS
    assert decoder.held(10) == LAYERS * 2 * 10 * 24
    _, facts = read_gguf_facts(written(tmp_path / "q2.gguf", "qwen", without(KEYS, "attention.head_count_kv")))
    said = [(fact.value, fact.source) for fact in facts if fact.name == "attention.head_count_kv"]
    assert said == [("as head_count", "attention.head_count")]


def test_a_window_that_the_file_leaves_out_is_that_of_llama_cpp(tmp_path: Path) -> None:
    decoder = read_gguf(written(tmp_path / "g.gguf", "gemma2", KEYS))
    assert {layer.mixer.window for layer in decoder.layers if isinstance(layer.mixer, Attention)} == {4096, None}
    _, facts = read_gguf_facts(written(tmp_path / "l.gguf", "smallthinker", KEYS | EXPERTS | {WINDOW: 99}))
    assert [(f.value, f.source) for f in facts if f.name == WINDOW] == [(4096, "hard-coded for arch smallthinker")]


def test_nemotron_h_may_have_experts(tmp_path: Path) -> None:
    keys = KEYS | SSM | EXPERTS | {"attention.head_count_kv": TURNS, "feed_forward_length": [0, 9, 0, 0, 9, 0, 0, 9]}
    layers = read_gguf(written(tmp_path / "n.gguf", "nemotron_h", keys)).layers
    assert [bool(layer.mlp) for layer in layers] == [bool(width) for width in keys["feed_forward_length"]]
    assert {layer.mlp for layer in layers} == {None, Experts(num_experts=5, per_token=2, width=7, gated=False)}


def test_a_convolution_of_one_tap_holds_nothing(tmp_path: Path) -> None:
    keys = KEYS | {"attention.head_count_kv": TURNS, "shortconv.l_cache": 1}
    assert read_gguf(written(tmp_path / "lfm.gguf", "lfm2", keys)).held(10) == 2 * 10 * 16


def test_the_first_stream_of_gemma3n_is_a_fact(tmp_path: Path) -> None:
    arch, said, _ = FAMILIES["gemma3n_text"]
    file = written(tmp_path / "g.gguf", arch, KEYS | said | {"altup.active_idx": 0})
    noted = {fact.name: fact.note for fact in read_gguf_facts(file)[1]}
    assert noted["altup.active_idx"] == "which of the streams goes first"
