"""Short convolutions, element-wise states and loops as their configs describe them, with sizes worked out by hand."""

from __future__ import annotations

import pytest

from kvtally import Attention, InputError, Layer, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config
from recurrent_parts import BASE, GQA, HEADS, HIDDEN, MLP, gates, of, read

CONV = Recurrent(matrices=((Term.in_proj, None, 72), (Term.out_proj, None, None)), conv_channels=HIDDEN, conv_kernel=3)


def test_lfm2_adjusts_the_width_of_its_mlp() -> None:
    fields = {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "block_multiple_of": 16, **HEADS}
    decoder = read("lfm2", **fields | {"intermediate_size": 100})  # 200 / 3 is 66, rounded up to 80
    assert decoder == of(Layer(mixer=CONV, mlp=Mlp(width=80)), Layer(mixer=GQA, mlp=Mlp(width=80)))
    assert decoder.layers[0].held(99) == 2 * HIDDEN


def test_lfm2_moe_needs_its_list_of_layers() -> None:
    with pytest.raises(InputError, match="layer_types"):
        read("lfm2_moe", num_hidden_layers=2, **HEADS)


def test_zaya_keeps_the_inputs_of_two_convolutions_and_half_a_value() -> None:
    fields = {"num_experts": 5, "num_experts_per_tok": 1, "moe_intermediate_size": 20, "router_hidden_size": 11}
    decoder = read("zaya", intermediate_size=None, num_hidden_layers=1, head_dim=6, **HEADS, **fields)
    (layer,) = decoder.layers
    terms = layer.projections(HIDDEN)
    assert terms[Term.router] == HIDDEN * 11 + 2 * 11 * 11 + 11 * (5 + 1)
    assert terms[Term.conv1d] == 36 * 2 + 36 * 2 * 6  # a channel at a time, then a head at a time
    assert layer.held(10) == 10 * 24 + 36 + 36 + 6


def test_recurrent_gemma_holds_a_vector_and_three_taps() -> None:
    fields = {"num_hidden_layers": 3, "attention_window_size": 5, "lru_width": 20, **HEADS}
    decoder = read("recurrent_gemma", **fields)
    unit, _, attending = decoder.layers
    assert attending == Layer(mixer=Attention(num_heads=4, num_kv_heads=2, head_dim=6, window=5), mlp=Mlp(width=17))
    assert unit.held(99) == 20 + 3 * 20
    assert unit.projections(HIDDEN)[Term.extra_proj] == 2 * 4 * 5 * 5  # two gates of four blocks
    assert Term.state_update not in unit.projections(HIDDEN)


def test_rwkv_holds_two_shifts_and_three_sums() -> None:
    decoder = read("rwkv", num_hidden_layers=1, attention_hidden_size=20)
    (layer,) = decoder.layers
    assert layer.held(99) == 2 * HIDDEN + 3 * 20
    assert layer.projections(HIDDEN)[Term.extra_proj] == HIDDEN * HIDDEN


def test_xlstm_holds_a_matrix_a_normalizer_and_a_maximum_for_each_head() -> None:
    decoder = read_config({"model_type": "xlstm", "hidden_size": 128, "num_hidden_layers": 1, "num_heads": 4})
    (layer,) = decoder.layers
    assert layer.held(99) == 4 * (16 * 32 + 16 + 1)
    assert layer.projections(128)[Term.up_proj] == 128 * 384  # 2.667 * 128, rounded up to 64s


def test_dory_runs_its_middle_layers_again_with_k_and_v_of_their_own() -> None:
    words = ["sliding_attention", "mlp", "full_attention", "mlp", "sliding_attention", "mlp"]
    loops = {"n_input_layers": 2, "n_output_layers": 2, "n_recurrent_loops": 3, "sliding_window": 5}
    decoder = read("dory", num_hidden_layers=6, layer_types=words, head_dim=6, **loops, **HEADS)
    sliding = Layer(
        mixer=Attention(num_heads=4, num_kv_heads=2, head_dim=6, window=5), beside=(gates((None, 24)),), mlp=MLP
    )
    full = Layer(mixer=GQA, beside=(gates((None, 24)),), mlp=MLP)
    assert decoder == of(sliding, full, full, full, sliding)


def test_dory_refuses_a_cache_of_the_last_loop_alone() -> None:
    with pytest.raises(InputError, match="last_loop"):
        read("dory", num_hidden_layers=17, recurrent_kv_cache_mode="last_loop", head_dim=6, **HEADS)


def test_hrm_runs_a_low_stack_and_a_high_one() -> None:
    decoder = read("hrm_text", num_hidden_layers=2, num_attention_heads=4, head_dim=6, H_cycles=2, L_cycles=3)
    assert len(decoder.layers) == 2 * 2 * (3 + 1)


INKLING = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 1,
    "head_dim": 6,
    "swa_head_dim": 5,
    "sliding_window_size": 5,
    "d_rel": 3,
    "n_routed_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
}


def test_inkling_convolves_k_v_attention_and_mlp() -> None:
    decoder = read("inkling_text", num_hidden_layers=6, rel_extent=9, **INKLING)
    sliding, full = decoder.layers[0], decoder.layers[5]
    assert sliding.held(99) == 5 * 2 * 5 + 3 * (2 * 5 + 2 * HIDDEN)
    assert full.projections(HIDDEN)[Term.conv1d] == 4 * (2 * 12 + 2 * HIDDEN)
    assert full.projections(HIDDEN)[Term.extra_proj] == HIDDEN * 12 + 12 * 9
    assert full.projections(HIDDEN)[Term.router] == HIDDEN * (5 + 2)


def test_inkling_2_loops_over_whole_blocks() -> None:
    loop = {"n_layers_per_attn_res_block": 2, "loop_layer_index_start": 2, "loop_layer_index_end": 4}
    fields = INKLING | loop | {"rel_extent": 9, "num_hidden_layers": 6, "unpadded_vocab_size": 60}
    decoder = read_config({"model_type": "inkling2_loop_text", **BASE, **fields, "intermediate_size": 20})
    assert len(decoder.layers) == 6 + 2 * 2
    assert decoder.vocab_size == 60
    fields["loop_layer_index_end"] = 5
    with pytest.raises(InputError, match="whole blocks"):
        read_config({"model_type": "inkling2_loop_text", **BASE, **fields, "intermediate_size": 20})
