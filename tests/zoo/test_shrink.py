"""The shrinking rule: every kind of layer stays, and every size is small and its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")

from kvtally.live.zoo import names
from kvtally.live.zoo_shrink import kept_layers, shrunk
from kvtally.live.zoo_sizes import EXCEPTIONS, VOCAB


@given(st.lists(st.sampled_from("sfm"), min_size=1, max_size=40), st.data())
def test_two_layers_of_each_kind_stay_and_at_least_four(types: list[str], data: st.DataObject) -> None:
    dense = data.draw(st.integers(0, len(types)))
    kinds = [(kind, index < dense) for index, kind in enumerate(types)]
    kept = kept_layers({"layer_types": types, "first_k_dense_replace": dense}, len(types))
    assert kept == sorted(set(kept))
    assert len(kept) >= min(4, len(types))
    for kind in set(kinds):
        assert sum(kinds[index] == kind for index in kept) >= min(2, kinds.count(kind))
    assert len(kept) <= max(4, 2 * len(set(kinds)))


def test_a_layer_listed_by_its_index_is_a_kind_of_its_own() -> None:
    assert kept_layers({"hybrid_layer_ids": [6, 9]}, 12) == [0, 1, 6, 9]


def test_sizes_differ_and_heads_are_not_square() -> None:
    llama = shrunk("llama")
    heads, kv, width = llama.num_attention_heads, llama.num_key_value_heads, llama.head_dim
    sizes = [llama.hidden_size, llama.intermediate_size, llama.vocab_size, heads, kv, width]
    assert len(set(sizes)) == len(sizes)
    assert kv < heads
    assert shrunk("gemma2").head_dim * heads != llama.hidden_size


def test_windows_chunks_and_choices_are_shorter_than_the_passes() -> None:
    from kvtally.live.zoo import LISTS

    longest = LISTS["cached"][0].new
    assert shrunk("gemma2").sliding_window < longest
    assert shrunk("llama4").text_config.attention_chunk_size < longest
    assert shrunk("deepseek_v32").index_topk < longest


def test_queries_are_scaled_by_their_position_within_the_passes() -> None:
    from transformers import CONFIG_MAPPING

    from kvtally.live.zoo import LISTS

    longest, original = LISTS["cached"][0].new, "original_max_position_embeddings"
    assert shrunk("llama4").text_config.floor_scale < longest
    rope, full = shrunk("ministral3").rope_parameters, CONFIG_MAPPING["ministral3"]().rope_parameters
    assert rope[original] < longest < full[original]
    assert {k: v for k, v in rope.items() if "max_pos" not in k} == {
        k: v for k, v in full.items() if "max_pos" not in k
    }


def test_an_indexer_has_enough_heads_for_no_score_to_be_0() -> None:
    assert shrunk("deepseek_v32").index_n_heads == shrunk("hy_v4").index_n_heads == 16
    sparse = shrunk("minimax_m3_vl_text")
    assert sparse.index_n_heads == sparse.num_key_value_heads == 2


def test_vectors_of_zeros_are_drawn_and_others_stay() -> None:
    from kvtally.live.harness import build
    from kvtally.live.zoo import scaled

    layer = scaled(build(shrunk("gpt2"), device="cpu")).transformer.h[0]
    assert 0.05 < layer.mlp.c_fc.bias.std() < 0.15
    assert layer.ln_1.weight.eq(1).all()


def test_layers_that_share_keys_keep_layers_of_their_own_to_share() -> None:
    config = shrunk("gemma3n_text")
    own = config.num_hidden_layers - config.num_kv_shared_layers
    assert 0 < own < config.num_hidden_layers
    assert set(config.layer_types[own:]) <= set(config.layer_types[:own])


def test_every_head_of_a_latent_expands_its_own_keys() -> None:
    config = shrunk("deepseek_v3")
    assert config.num_key_value_heads == config.num_attention_heads
    assert 0 < config.first_k_dense_replace < config.num_hidden_layers


def test_a_nested_config_shrinks_by_the_same_rule() -> None:
    config = shrunk("gemma3")
    assert config.text_config.hidden_size == shrunk("gemma3_text").hidden_size
    assert config.vision_config.hidden_size < 100
    assert set(config.text_config.layer_types) == {"sliding_attention", "full_attention"}


def test_special_tokens_are_the_last_of_the_vocabulary() -> None:
    config = shrunk("bart")
    special = {config.pad_token_id, config.bos_token_id, config.eos_token_id, config.decoder_start_token_id}
    assert len(special) == 4
    assert VOCAB - 9 <= min(special) <= max(special) < VOCAB


def test_a_single_key_head_stays_one() -> None:
    assert shrunk("deepseek_v4").num_key_value_heads == 1


@pytest.mark.parametrize("name", names())
def test_every_architecture_has_a_small_config(name: str) -> None:
    decoder: Any = shrunk(name).get_text_config(decoder=True)
    if name == "blt":  # four models in one, without layers of its own
        decoder = decoder.decoder_config
    assert 0 < decoder.num_hidden_layers <= 32
    assert decoder.hidden_size <= 128


def test_what_the_rule_was_told_is_about_architectures_that_there_are() -> None:
    assert set(EXCEPTIONS) <= set(names())
    assert all(exception.why and (exception.full or exception.small) for exception in EXCEPTIONS.values())
