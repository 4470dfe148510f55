"""Decoders of attention, dense or with experts: typed by hand, from the words of their own files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure import (
    config_dense,
    config_experts,
    config_gemma,
    config_gpt,
    config_nested,
    config_remote,
    config_window,
    config_window_experts,
)
from kvtally.pure.config import read_config, read_facts

FULL, SLIDING = "full_attention", "sliding_attention"
FIELDS = {
    "vocab_size": 101,
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 70,
}
GQA = Attention(num_heads=6, num_kv_heads=2, head_dim=10)
NEAR = replace(GQA, window=7)
WIDE, PLAIN = Mlp(width=70), Mlp(width=70, gated=False)
ROUTED = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
EIGHT = Experts(num_experts=8, per_token=3, width=20)
AS_WIDE = Experts(num_experts=8, per_token=3, width=70)


def further(*matrices: tuple[int | None, int | None]) -> tuple[Recurrent, ...]:
    return (Recurrent(matrices=tuple((Term.extra_proj, i, o) for i, o in matrices)),)


def layers(mixers: list[Any], mlps: list[Any], **more: Any) -> tuple[Layer, ...]:
    return tuple(Layer(mixer=m, mlp=p, **more) for m, p in zip(mixers, mlps, strict=True))


def read(family: str, **fields: Any) -> Decoder:
    """The decoder of a config of the common fields with these over them; `...` takes a field out."""
    config = {"model_type": family} | FIELDS | fields
    return read_config({name: value for name, value in config.items() if value is not ...})


def by_kind(near: str, near_mixer: Any = NEAR, far: Any = GQA) -> list[Any]:
    """A mixer for each letter: `s` slides, `f` sees everything."""
    return [near_mixer if letter == "s" else far for letter in near]


SLIDES = {"sliding_window": 7}
SPARSE_AFTER_2 = [WIDE] * 2 + [EIGHT] * 3
WINDOWS: dict[str, tuple[dict[str, Any], str, list[Any]]] = {
    # family: its own fields, which of six layers slide, their MLPs
    "afmoe": (
        {**ROUTED, "num_shared_experts": 2, "num_dense_layers": 2, "global_attn_every_n_layers": 3},
        "ssfssf",
        [],
    ),
    "cohere2": ({"head_dim": ...}, "sssfss", [WIDE] * 6),
    "cwm": ({}, "fsssfs", [WIDE] * 6),
    "granite_swa": ({}, "fsssfs", [WIDE] * 6),
    "exaone4": ({"sliding_window_pattern": 3}, "ssfssf", [WIDE] * 6),
    "olmo3": ({}, "sssfss", [WIDE] * 6),
    "vaultgemma": ({}, "sfsfsf", [WIDE] * 6),
    "ministral": ({}, "ssssss", [WIDE] * 6),
    "smollm3": ({"use_sliding_window": True, "no_rope_layer_interval": 3}, "ffsffs", [WIDE] * 6),
    "flint": ({**ROUTED, "shared_expert_intermediate_size": 12}, "ffsssf", []),
    "kolibri1": ({**ROUTED, "shared_expert_intermediate_size": 12, "intermediate_size": ...}, "ssssfs", []),
    "beam": (ROUTED, "sssssf", []),
    "mellum": ({**ROUTED, "layer_types": [SLIDING, FULL] * 3}, "sfsfsf", [EIGHT] * 6),
    "dots1": (
        {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "n_shared_experts": 2}
        | {"first_k_dense_replace": 6, "max_window_layers": 4},
        "ffffss",
        [WIDE] * 6,
    ),
}


@pytest.mark.parametrize("family", WINDOWS)
def test_which_layers_slide(family: str) -> None:
    fields, kinds, mlps = WINDOWS[family]
    decoder = read(family, **({"num_hidden_layers": 6, "sliding_window": 7} | fields))
    width = 8 if fields.get("head_dim") is ... else 10
    assert [layer.mixer for layer in decoder.layers] == by_kind(
        kinds, replace(NEAR, head_dim=width), replace(GQA, head_dim=width)
    )
    if mlps:
        assert [layer.mlp for layer in decoder.layers] == mlps


@pytest.mark.parametrize("family", [f for f in WINDOWS if f not in ("cohere2", "dots1", "smollm3")])
def test_layer_types_come_before_the_rule(family: str) -> None:
    fields, _, _ = WINDOWS[family]
    kinds = [FULL] * 5 + [SLIDING]
    decoder = read(family, **({"num_hidden_layers": 6, "sliding_window": 7} | fields | {"layer_types": kinds}))
    assert [layer.mixer.window for layer in decoder.layers] == [None] * 5 + [7]


EXPERTS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "olmoe": ({"num_experts": 8, "num_experts_per_tok": 3}, [AS_WIDE] * 5),
    "granitemoe": ({"num_local_experts": 8, "num_experts_per_tok": 3}, [AS_WIDE] * 5),
    "granitemoeshared": (
        {"num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 12},
        [replace(AS_WIDE, shared=12)] * 5,
    ),
    "minimax_m2": ({"num_local_experts": 8, "num_experts_per_tok": 3}, [AS_WIDE] * 5),
    "phimoe": ({"num_local_experts": 8, "num_experts_per_tok": 2}, [replace(AS_WIDE, per_token=2)] * 5),
    "aria_text": (
        {"moe_num_experts": 8, "moe_topk": 3, "moe_num_shared_experts": 2},
        [replace(AS_WIDE, shared=140)] * 5,
    ),
    "hunyuan_v1_moe": (
        {"num_experts": 8, "moe_topk": [1, 2, 3, 4, 5]},
        [replace(AS_WIDE, per_token=k, shared=70) for k in (1, 2, 3, 4, 5)],
    ),
    "ernie4_5_moe": (
        {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 20, "moe_num_shared_experts": 2}
        | {"moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2},
        [WIDE, replace(EIGHT, shared=40), WIDE, replace(EIGHT, shared=40), WIDE],
    ),
    "glm4_moe": (
        {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "first_k_dense_replace": 2},
        [WIDE] * 2 + [replace(EIGHT, shared=20)] * 3,  # n_shared_experts is 1 by class default
    ),
    "solar_open": (
        {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "intermediate_size": ...},
        [replace(EIGHT, shared=20)] * 5,
    ),
    "hy_v3": (ROUTED | {"num_shared_experts": 2}, [WIDE] + [replace(EIGHT, shared=40)] * 4),
    "qwen2_moe": (
        ROUTED | {"shared_expert_intermediate_size": 12, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
        [WIDE, replace(EIGHT, shared=12, shared_gate=1), WIDE, WIDE, WIDE],
    ),
    "exaone_moe": (ROUTED | {"sliding_window": None}, [WIDE] + [replace(EIGHT, shared=20)] * 4),
    "cohere2_moe": (
        {"num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 1, "sliding_window": 7}
        | {"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 33, "layer_types": [FULL] * 5},
        [Mlp(width=33)] * 2 + [replace(AS_WIDE, shared=70)] * 3,
    ),
}


@pytest.mark.parametrize("family", EXPERTS)
def test_which_layers_choose_among_experts(family: str) -> None:
    fields, mlps = EXPERTS[family]
    assert read(family, **fields) == Decoder(hidden_size=48, vocab_size=101, layers=layers([GQA] * 5, mlps))


GPT = {"vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 6}
MHA = Attention(num_heads=6, num_kv_heads=6, head_dim=8)
FOUR_TIMES = Mlp(width=192, gated=False)
MADE_OF_NAMES: dict[str, tuple[dict[str, Any], Layer]] = {
    "codegen": (GPT, Layer(mixer=MHA, mlp=FOUR_TIMES)),
    "gptj": (GPT | {"n_inner": 70}, Layer(mixer=MHA, mlp=PLAIN)),
    "openai-gpt": (GPT, Layer(mixer=MHA, mlp=FOUR_TIMES)),
    "ctrl": (GPT | {"dff": 70}, Layer(mixer=MHA, mlp=PLAIN)),
    "gpt_bigcode": (GPT, Layer(mixer=replace(MHA, num_kv_heads=1), mlp=FOUR_TIMES)),
    "bloom": ({"vocab_size": 101, "hidden_size": 48, "n_layer": 3, "n_head": 6}, Layer(mixer=MHA, mlp=FOUR_TIMES)),
    "xglm": (
        {"vocab_size": 101, "d_model": 48, "num_layers": 3, "attention_heads": 6, "ffn_dim": 70},
        Layer(mixer=MHA, mlp=PLAIN),
    ),
    "mpt": (
        {
            "vocab_size": 101,
            "d_model": 48,
            "n_layers": 3,
            "n_heads": 6,
            "attn_config": {"alibi": True, "kv_n_heads": 2},
        },
        Layer(mixer=replace(MHA, num_kv_heads=2), mlp=FOUR_TIMES),
    ),
    "dbrx": (
        {"vocab_size": 101, "d_model": 48, "n_layers": 3, "n_heads": 6, "attn_config": {"kv_n_heads": 2}}
        | {"ffn_config": {"ffn_hidden_size": 70, "moe_num_experts": 8, "moe_top_k": 3}},
        Layer(mixer=replace(MHA, num_kv_heads=2), mlp=AS_WIDE),
    ),
    "cpmant": (
        {"vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "dim_head": 10}
        | {"dim_ff": 70},
        Layer(mixer=Attention(num_heads=6, num_kv_heads=6, head_dim=10), mlp=WIDE),
    ),
    "chatglm": (
        {"padded_vocab_size": 101, "hidden_size": 48, "num_layers": 3, "num_attention_heads": 6, "kv_channels": 10}
        | {"multi_query_attention": True, "multi_query_group_num": 2, "ffn_hidden_size": 70},
        Layer(mixer=GQA, mlp=WIDE),
    ),
    "jetmoe": (
        {"vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_key_value_heads": 2, "kv_channels": 10}
        | {"num_experts_per_tok": 3, "num_local_experts": 8, "intermediate_size": 70},
        Layer(mixer=GQA, mlp=AS_WIDE, beside=(Recurrent(matrices=((Term.router, None, 8),)),)),
    ),
}


@pytest.mark.parametrize("family", MADE_OF_NAMES)
def test_families_with_names_of_their_own(family: str) -> None:
    fields, layer = MADE_OF_NAMES[family]
    assert read_config({"model_type": family, **fields}) == Decoder(hidden_size=48, vocab_size=101, layers=(layer,) * 3)


class TestOneFamily:
    def test_dense_ones_are_llama_with_or_without_a_gate(self) -> None:
        for family in config_dense.LIKE_LLAMA:
            assert read(family).layers == layers([GQA] * 5, [WIDE] * 5), family
        for family in config_dense.WITHOUT_A_GATE:
            assert read(family).layers == layers([GQA] * 5, [PLAIN] * 5), family

    def test_head_dim_is_hidden_by_heads_where_a_class_has_none(self) -> None:
        assert read("granite", head_dim=...).layers[0].mixer.head_dim == 8
        with pytest.raises(InputError, match="`head_dim` is 10, expected 8"):
            read("stablelm")

    def test_an_output_head_may_be_narrower_than_the_embedding(self) -> None:
        assert read("apertus1p5_text", output_vocab_size=40).vocab_size == 40
        assert read("apertus1p5_text", output_vocab_size=None).vocab_size == 101

    def test_opt_projects_between_embedding_and_hidden_size(self) -> None:
        fields = {"num_key_value_heads": ..., "head_dim": ..., "intermediate_size": ..., "ffn_dim": 70}
        decoder = read("opt", **fields, word_embed_proj_dim=20)
        assert (decoder.outside, decoder.head, decoder.head_inputs) == (((20, 48),), ((48, 20),), 20)
        assert read("opt", **fields).outside == ()

    def test_gpt_neo_keeps_all_and_looks_at_the_newest(self) -> None:
        config = {"model_type": "gpt_neo", "hidden_size": 48, "num_layers": 3, "num_heads": 6, "window_size": 7}
        decoder = read_config(config | {"attention_types": [[["global", "local"], 1], [["local"], 1]]})
        assert [layer.mixer.top_k for layer in decoder.layers] == [None, 7, 7]
        with pytest.raises(InputError, match="covers 2 layers and `num_layers` is 3"):
            read_config(config | {"attention_types": [[["global", "local"], 1]]})

    def test_output_gates_are_matrices_beside_attention(self) -> None:
        assert read("beam", **ROUTED, **SLIDES).layers[0].beside == further((None, 60))
        laguna = read(
            "laguna", **ROUTED, shared_expert_intermediate_size=12, num_attention_heads_per_layer=[2, 4, 6, 8, 10]
        )
        assert [layer.beside for layer in laguna.layers] == [further((None, n)) for n in (2, 4, 6, 8, 10)]
        assert [layer.mixer.num_heads for layer in laguna.layers] == [2, 4, 6, 8, 10]
        wide = read("laguna", **ROUTED, shared_expert_intermediate_size=12, gating="per-element")
        assert wide.layers[0].beside == further((None, 60))

    def test_mimo_has_twice_the_kv_heads_where_it_slides_and_narrow_values(self) -> None:
        fields = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "v_head_dim": 4}
        decoder = read("mimo_v2_flash", **fields, num_attention_heads=8, num_hidden_layers=6, sliding_window=7)
        far = Attention(num_heads=8, num_kv_heads=2, head_dim=10, v_head_dim=4)
        assert [layer.mixer for layer in decoder.layers] == by_kind(
            "fssssf", replace(far, num_kv_heads=4, window=7), far
        )
        assert decoder.held(9) == 9 * 2 * (2 * 10 + 2 * 4) + 4 * 7 * (4 * 10 + 4 * 4)
        hub = read(
            "mimo_v2_flash", **fields, num_attention_heads=8, num_hidden_layers=6, sliding_window=7,
            sliding_window_size=7, swa_num_key_value_heads=4, hybrid_layer_pattern=[0, 1, 1, 1, 1, 0],
        )  # fmt: skip
        assert hub.layers[1].mixer.window == 8  # the query itself is not among those 7

    def test_modernbert_slides_by_half_and_has_a_matrix_before_the_output_head(self) -> None:
        decoder = read("modernbert-decoder", local_attention=14, num_key_value_heads=..., head_dim=...)
        near = replace(MHA, window=7)
        assert decoder.layers == layers(by_kind("fssfs", near, MHA), [WIDE] * 5)
        assert decoder.head == ((48, 48),)

    def test_diffllama_mixes_twice_and_doge_masks_by_values(self) -> None:
        assert read("diffllama").layers[0].mixer == replace(GQA, differential=True)
        assert read("diffllama").layers[0].mixer.pair_cost == {Term.qk: 60, Term.pv: 120}
        assert read("doge").layers[0].mixer == replace(GQA, value_mask=True)

    def test_llama4_chunks_where_positions_rotate_and_runs_all_experts(self) -> None:
        fields = {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 33}
        decoder = read(
            "llama4_text", **fields, attention_chunk_size=6, no_rope_layer_interval=3, interleave_moe_layer_step=2
        )
        near = replace(GQA, chunk=6)
        chosen = Experts(num_experts=4, per_token=1, width=70, shared=70, all_run=True)
        dense = Mlp(width=33)
        assert decoder.layers == layers([near, near, GQA, near, near], [dense, chosen, dense, chosen, dense])
        assert decoder.layers[1].surplus(48) == 3 * 3 * 48 * 70  # three experts that were not chosen

    def test_minimax_m3_chooses_blocks_by_an_indexer(self) -> None:
        own = {"sparse_attention_freq": [0, 1, 1, 0, 1], "sparse_num_index_heads": 2, "sparse_index_dim": 4}
        config = {"num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 12}
        decoder = read(
            "minimax_m3", **config, dense_intermediate_size=33, moe_layer_freq=[0, 1, 1, 1, 1],
            sparse_attention_config=own | {"sparse_topk_blocks": 3, "sparse_block_size": 5},
        )  # fmt: skip
        indexer = Indexer(num_heads=2, head_dim=4, weighted=False)
        assert [layer.beside for layer in decoder.layers] == [(indexer,) if s else () for s in (0, 1, 1, 0, 1)]
        assert decoder.layers[1].mixer == replace(GQA, top_k=3, block=5)
        assert decoder.layers[0].mlp == Mlp(width=33)
        assert decoder.held(100) == 100 * (5 * 40 + 3 * 4)


GEMMA = FIELDS | {"sliding_window": 7, "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL]}


class TestGemma:
    def test_shared_layers_read_the_last_of_their_kind(self) -> None:
        decoder = read("gemma4_unified_text", **GEMMA, num_kv_shared_layers=2, global_head_dim=14)
        far = replace(GQA, head_dim=14)
        assert [layer.mixer for layer in decoder.layers] == [NEAR, far, NEAR, NEAR, far]
        assert [layer.reads for layer in decoder.layers] == [None, None, None, 2, 1]
        assert decoder.held(100) == 2 * 7 * 40 + 100 * 56  # two sliding layers and a full one of 2 * 2 * 14

    def test_heads_of_full_layers(self) -> None:
        config = {**GEMMA, "num_global_key_value_heads": 3, "global_head_dim": 14, "hidden_size_per_layer_input": 0}
        same = read("gemma4_text", **config, attention_k_eq_v=True)
        assert same.layers[1].mixer == Attention(num_heads=6, num_kv_heads=3, head_dim=14, k_is_v=True)
        assert same.layers[0].mixer == NEAR
        assert read("gemma4_text", **config).layers[1].mixer == replace(GQA, head_dim=14)
        del config["num_global_key_value_heads"], config["global_head_dim"]
        assert read("gemma4_text", **config).layers[1].mixer.head_dim == 512
        said = read("gemma4_text", **config, per_layer_config={"1": {"head_dim": 14}, "4": {"num_key_value_heads": 3}})
        assert [m.mixer.head_dim for m in said.layers] == [10, 14, 10, 10, 10]
        assert [m.mixer.num_kv_heads for m in said.layers] == [2, 2, 2, 2, 3]

    def test_experts_beside_the_mlp_and_inputs_for_each_layer(self) -> None:
        experts = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 20}
        decoder = read("gemma4_text", **GEMMA, **experts, hidden_size_per_layer_input=9)
        assert decoder.layers[0].mlp == replace(EIGHT, shared=70)
        assert decoder.layers[0].beside == further((None, 9), (9, None))
        assert decoder.outside == ((48, 5 * 9),)

    def test_gemma3n(self) -> None:
        config = GEMMA | {"num_kv_shared_layers": 2, "altup_num_inputs": 3, "laurel_rank": 11}
        decoder = read(
            "gemma3n_text", **config | {"intermediate_size": [10, 20, 30, 40, 50], "hidden_size_per_layer_input": 9}
        )
        assert [layer.reads for layer in decoder.layers] == [None, None, None, 2, 1]
        assert [layer.mlp.width for layer in decoder.layers] == [10, 20, 30, 40, 50]
        # two routers, coefficients to predict and to correct, streams mixed; Laurel; the layer's own input
        extra = 2 * 48 * 3 + 3 * 9 + 3 * 3 + 48 * 9 + 2 * 48 * 11 + 2 * 48 * 9
        assert decoder.layers[0].projections(48)[Term.extra_proj] == extra
        assert decoder.outside == ((48, 45), *((48, 48),) * 4)

    def test_what_is_refused(self) -> None:
        with pytest.raises(InputError, match="read K and V from the cache of another model"):
            read("gemma4_assistant")
        with pytest.raises(InputError, match="no layer before them is `full_attention`"):
            read("gemma4_unified_text", **GEMMA, num_kv_shared_layers=4)
        with pytest.raises(InputError, match="tokens that see later ones have no cache"):
            read("gemma4_unified_text", **GEMMA, use_bidirectional_attention="all")


def test_draft_layers_are_set_aside_and_said_so() -> None:
    _, facts = read_facts({"model_type": "minimax_m2", **FIELDS, "use_mtp": True, "num_mtp_modules": 3})
    assert {f.name for f in facts if f.note == "draft layers, not counted"} == {"use_mtp", "num_mtp_modules"}


def test_more_chosen_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="`num_experts_per_tok` is 9 and `num_experts` is 8"):
        read("olmoe", num_experts=8, num_experts_per_tok=9)
    with pytest.raises(InputError, match="its router always chooses two"):
        read("phimoe", num_local_experts=8, num_experts_per_tok=3)


OURS = [
    name
    for module in (
        config_dense, config_experts, config_gemma, config_gpt, config_nested, config_window, config_window_experts
    )
    for name in module.FAMILIES
]  # fmt: skip
assert not set(config_remote.FAMILIES) & set(OURS)
# Their classes give no decoder by default: draft models, sizes that are missing, and text configs that are
# filled in by the class around them.
NO_DEFAULT = {
    "gemma4_assistant", "gemma4_unified_assistant", "dots1", "glm4_moe", "got_ocr2", "moss_transcribe_diarize",
    "minimax_m3", "RefinedWeb", "RefinedWebModel",
}  # fmt: skip


@pytest.mark.parametrize("family", [name for name in OURS if name not in NO_DEFAULT])
def test_a_config_class_with_its_defaults_reads_like_an_empty_file(family: str) -> None:
    """What transformers writes for a default config, every derived field spelled out, is the same decoder."""
    mapping = pytest.importorskip("transformers").CONFIG_MAPPING
    written = mapping[family]().to_dict()
    bare = {"model_type": family} | ({"text_config": {}} if "text_config" in written else {})
    assert read_config(written) == read_config(bare)
