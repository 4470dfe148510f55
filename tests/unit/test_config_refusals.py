"""Configs that contradict themselves, or say what is not understood: refused by name, never passed over."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.pure.config import read_config, read_facts

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("family_configs.json").read_text())


def read(family: str, source: int | None = None, **changes: Any) -> Decoder:
    """The decoder of a family's config with some fields changed; `...` takes a field out."""
    config = deepcopy(CONFIGS[family])
    inner = config.get("text_config", config)
    inner |= changes
    for name in [name for name, value in inner.items() if value is ...]:
        del inner[name]
    return read_config(config, source=17 if family == "t5" and source is None else source)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "llama",
        {"num_key_value_heads": 4},
        "`num_attention_heads` is 6 and `num_key_value_heads` is 4, expected a whole",
    ),
    (
        "mistral",
        {"num_key_value_heads": ...},
        "`num_attention_heads` is 6 and `num_key_value_heads` is 8 by class default",
    ),
    ("llama", {"head_dim": None, "num_attention_heads": 10}, "`hidden_size` is 48 and `num_attention_heads` is 10"),
    ("gpt_neox", {"head_dim": 9}, "`head_dim` is 9, expected 8: a head is hidden_size / heads wide"),
    ("gpt2", {"num_hidden_layers": 4}, "`num_hidden_layers` is 4 and `n_layer` is 5, expected the same"),
    ("llama", {"hidden_size": "48"}, '`hidden_size` is "48", expected an integer'),
    ("llama", {"hidden_size": 48.0}, "`hidden_size` is 48.0, expected an integer"),
    ("llama", {"hidden_size": float("nan")}, "`hidden_size` is NaN, expected an integer"),
    ("llama", {"hidden_size": True}, "`hidden_size` is true, expected an integer"),
    ("llama", {"hidden_size": None}, "`hidden_size` is null, expected an integer"),
    ("llama", {"num_hidden_layers": -1}, "`num_hidden_layers` is -1, expected an integer of at least 1"),
    ("llama", {"num_hidden_layers": 10**7}, "`num_hidden_layers` is 10,000,000, expected"),
    ("llama", {"vocab_size": 10**5000}, "`vocab_size` is an integer of 16610 bits, expected"),
    ("llama", {"intermediate_size": [70] * 5}, "`intermediate_size` is [70, 70, 70, 70, 70], expected an integer"),
    (
        "llama",
        {"sliding_window": 7},
        "`sliding_window` is 7, which bears on the cache or the work and is not read for `llama`",
    ),
    ("llama", {"num_kv_shared_layers": 2}, "`num_kv_shared_layers` is 2, which bears"),
    (
        "llama",
        {"layer_types": ["sliding_attention"] * 5},
        "`layer_types[0]` is `sliding_attention`, expected `full_attention`",
    ),
    ("gpt2", {"add_cross_attention": True}, "`add_cross_attention` is true, which bears"),
    ("gemma3", {"num_kv_shared_layers": 2}, "`text_config.num_kv_shared_layers` is 2, which bears"),
    ("gemma3", {"hidden_size": "x"}, '`text_config.hidden_size` is "x", expected'),
    ("gemma3", {"model_type": "gemma3n_text"}, '`text_config.model_type` is "gemma3n_text"; known: `gemma3_text`'),
    (
        "mistral",
        {"layer_types": ["full_attention"] * 5},
        "`layer_types[0]` is `full_attention`, expected `sliding_attention`: `sliding_window` is 7",
    ),
    ("qwen2", {"layer_types": ["full_attention"] * 3}, "`layer_types` has 3 entries and `num_hidden_layers` is 5"),
    ("qwen2", {"layer_types": "full_attention"}, '`layer_types` is "full_attention", expected a list'),
    ("qwen2", {"use_sliding_window": "yes"}, '`use_sliding_window` is "yes", expected true or false'),
    (
        "qwen2",
        {"use_sliding_window": False, "layer_types": ["sliding_attention"] * 5},
        "`layer_types[0]` is `sliding_attention`, expected `full_attention`: `use_sliding_window`",
    ),
    (
        "gemma2",
        {"layer_types": ["full_attention"] * 4 + ["mega_attention"]},
        "`layer_types[4]` is `mega_attention`; known: `full_attention`, `sliding_attention`",
    ),
    ("gemma2", {"layer_types": [None] * 5}, "`layer_types[0]` is null; known:"),
    ("gemma2", {"sliding_window": None}, "`layer_types[0]` is `sliding_attention` and `sliding_window` is null"),
    ("gemma2", {"sliding_window_pattern": 6}, "`sliding_window_pattern` is 6, which bears"),
    (
        "gemma3_text",
        {"layer_types": ["full_attention"] * 5},
        "`layer_types[0]` is `full_attention` and `sliding_window_pattern` is 3",
    ),
    ("gemma3_text", {"use_bidirectional_attention": True}, "`use_bidirectional_attention` is true, expected false"),
    (
        "falcon",
        {"new_decoder_architecture": False, "num_kv_heads": 2},
        "`multi_query` is true by class default and `num_kv_heads` is 2",
    ),
    ("falcon", {"num_kv_heads": 4}, "`num_attention_heads` is 6 and `num_kv_heads` is 4"),
    ("RefinedWeb", {"n_head_kv": ...}, "`num_kv_heads` or `n_head_kv` is missing, and `RefinedWeb` has no default"),
    ("mixtral", {"num_experts_per_tok": 9}, "`num_experts_per_tok` is 9 and `num_local_experts` is 8"),
    ("gpt_oss", {"experts_per_token": 4}, "`num_experts_per_tok` is 3 and `experts_per_token` is 4, expected the same"),
    (
        "qwen3_moe",
        {"mlp_only_layers": [5]},
        "`mlp_only_layers[0]` is 5, expected an integer of at least 0 and at most 4",
    ),
    (
        "qwen3_moe",
        {"use_sliding_window": True, "max_window_layers": 3},
        "`use_sliding_window` is true and `max_window_layers`",
    ),
    ("deepseek_v3", {"first_k_dense_replace": 6}, "`first_k_dense_replace` is 6 and `num_hidden_layers` is 5"),
    ("deepseek_v3", {"num_key_value_heads": 2}, "`num_key_value_heads` is 2, expected 6"),
    ("deepseek_v3", {"head_dim": 8}, "`head_dim` is 8, expected 4 or 9 or 13 or 16: a part"),
    ("deepseek_v3", {"index_topk": 2048}, "`index_topk` is 2048, which bears"),
    ("whisper", {"decoder_attention_heads": 7}, "`d_model` is 48 and `decoder_attention_heads` is 7"),
    ("whisper", {"source": 31}, "`source` is 31 and `max_source_positions` is 30"),
    ("t5", {"feed_forward_proj": "swiglu-x-y"}, '`feed_forward_proj` is "swiglu-x-y", expected an activation'),
    ("t5", {"is_gated_act": True}, '`is_gated_act` is true, expected false: `feed_forward_proj` is "relu"'),
    ("t5", {"d_kv": 0}, "`d_kv` is 0, expected an integer of at least 1"),
    ("llama", {"source": 5}, "`source` is 5, and `llama` has no encoder"),
]


@pytest.mark.parametrize(("family", "changes", "said"), REFUSED, ids=[f"{f}-{'-'.join(c)}" for f, c, _ in REFUSED])
def test_contradictions_name_what_was_found(family: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(family, **changes)
    assert str(caught.value).startswith(f"config: {said}")


# The same of families whose class fills in what is not said here.
TWO = {"num_hidden_layers": 2}
FOUR = {"num_hidden_layers": 4}
BARE: list[tuple[str, dict[str, Any], str]] = [
    *(
        (family, TWO | {"layer_types": [kind, other]}, f"`layer_types[1]` is `{other}`; known: {known}")
        for family, kind, other, known in (
            ("lfm2", "conv", "linear_attention", "`full_attention`, `conv`, `attention`"),
            ("lfm3", "conv", "mamba", "`full_attention`, `conv`, `sliding_attention`, `attention`"),
            ("zaya", "hybrid", "full_attention", "`hybrid`, `hybrid_sliding`"),
            ("inkling_text", "hybrid", "linear_attention", "`hybrid`, `hybrid_sliding`"),
            ("inkling2_text", "hybrid_sliding", "attention", "`hybrid`, `hybrid_sliding`"),
            ("minimax", "linear_attention", "hybrid", "`linear_attention`, `full_attention`, `mamba`, `attention`"),
        )
    ),
    (
        "zamba",
        TWO | {"layers_block_type": ["mamba", "full_attention"]},
        "`layers_block_type[1]` is `full_attention`; known: `linear_attention`, `hybrid`, `mamba`",
    ),
    ("zamba2", TWO | {"layers_block_type": ["mamba", "attention"]}, "`layers_block_type[1]` is `attention`; known: "),
    (
        "gemma2",
        TWO | {"layer_types": ["full_attention"] * 2, "sliding_window_pattern": 3},
        "`sliding_window_pattern` is 3, which bears on the cache or the work and is not read for `gemma2`",
    ),
    (
        "gpt_oss",
        TWO | {"layer_types": ["full_attention"] * 2, "sliding_window_pattern": 3},
        "`sliding_window_pattern` ",
    ),
    (
        "mpt",
        {"n_heads": 6, "d_model": 48, "attn_config": {"kv_n_heads": 4}},
        "`n_heads` is 6 and `attn_config.kv_n_heads` is 4, expected a whole number of query heads for each KV head",
    ),
    (
        "gemma4_text",
        {"attention_k_eq_v": True, "num_global_key_value_heads": 3},
        "`num_attention_heads` is 8 by class default and `num_global_key_value_heads` is 3, expected a whole number",
    ),
    (
        "gemma4_text",
        {"per_layer_config": {"5": {"num_key_value_heads": 3}}},
        "`num_attention_heads` is 8 by class default and `per_layer_config.5.num_key_value_heads` is 3, expected",
    ),
    (
        "gemma4_text",
        {"per_layer_config": {"30": {}}},
        "`per_layer_config.30` names no layer, expected an index from 0 ",
    ),
    ("gemma4_text", {"per_layer_config": {"0": 5}}, "`per_layer_config.0` is 5, expected an object"),
    (
        "gemma4_text",
        {"per_layer_config": {"0": {"skip": ["attention"]}}},
        '`per_layer_config.0.skip` is ["attention"], which bears on the cache or the work and is not read',
    ),
    *(
        (
            family,
            {"sliding_window": None},
            "`layer_types[0]` is `sliding_attention` and `sliding_window` is null, expected a window",
        )
        for family in ("gemma3n_text", "gemma4_text", "gemma4_unified_text")
    ),
    (
        "hy_v4",
        FOUR | {"indexer_types": ["full"] * 4, "index_topk_freq": 3},
        "`index_topk_freq` is 3, which bears on the cache or the work and is not read for `hy_v4`",
    ),
    (
        "glm_moe_dsa",
        FOUR | {"indexer_types": ["full"] * 4, "index_topk_pattern": "FSFF"},
        '`indexer_types[1]` is `full` and `index_topk_pattern` is "FSFF", expected that they agree',
    ),
    (
        "jamba",
        FOUR | {"layers_num_experts": [1] * 4},
        "`layers_num_experts[1]` is 1, expected 16: it follows from periods and offsets",
    ),
    (
        "jamba",
        FOUR | {"layers_block_type": ["attention"] * 4},
        '`layers_block_type[0]` is "attention", expected "mamba": it follows from periods and offsets',
    ),
    (
        "jamba",
        FOUR | {"layer_types": ["full_attention"] * 4},
        '`layer_types[0]` is "full_attention", expected "linear_',
    ),
    (
        "bamba",
        TWO | {"attn_layer_indices": [0], "layer_types": ["full_attention"] * 2},
        '`layer_types[1]` is "full_attention", expected "linear_attention": attn_layer_indices lists those that attend',
    ),
    *(
        (
            "recurrent_gemma",
            {"num_hidden_layers": 3, name: ["sliding_attention"] * 3},
            f'`{name}[0]` is "sliding_attention", expected "linear_attention": it follows from block_types',
        )
        for name in ("layer_types", "layers_block_type")
    ),
    (
        "laguna",
        TWO | {"num_attention_heads_per_layer": []},
        "`num_attention_heads_per_layer` has 0 entries and `num_hidden_layers` is 2, expected one for each layer",
    ),
    *(
        ("minimax_m3_vl_text", TWO | {name: []}, f"`{name}` has 0 entries and `num_hidden_layers` is 2, expected one")
        for name in ("layer_types", "mlp_layer_types", "moe_layer_freq")
    ),
    (
        "minimax_m3_vl_text",
        TWO | {"sparse_attention_config": {"sparse_attention_freq": []}},
        "`sparse_attention_freq` has 0 entries and `num_hidden_layers` is 2, expected one for each layer",
    ),
    (
        "minimax_m3_vl_text",
        TWO | {"mlp_layer_types": ["sparse"] * 2, "moe_layer_freq": [0, 1]},
        "`moe_layer_freq[0]` is 0, expected 1: mlp_layer_types says it",
    ),
    ("gpt_neo", {"num_layers": 2, "attention_types": []}, "`attention_types` covers 0 layers and `num_layers` is 2"),
]


@pytest.mark.parametrize(("family", "fields", "said"), BARE, ids=[f"{f}-{'-'.join(c)}" for f, c, _ in BARE])
def test_contradictions_beside_class_defaults_name_what_was_found(
    family: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_config({"model_type": family, **fields})
    assert str(caught.value).startswith(f"config: {said}")


def test_lists_that_agree_with_what_they_follow_from_are_read() -> None:
    jamba = {"model_type": "jamba", "num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1}
    lists = {
        "layer_types": ["linear_attention", "full_attention"],
        "layers_block_type": ["mamba", "attention"],
        "layers_num_experts": [1, 16],
    }
    assert read_config(jamba | lists) == read_config(jamba)
    gemma = {"model_type": "recurrent_gemma", "num_hidden_layers": 3}
    kinds = ["linear_attention", "linear_attention", "sliding_attention"]
    assert read_config(gemma | {"layer_types": kinds, "layers_block_type": kinds}) == read_config(gemma)


def test_unknown_families() -> None:
    with pytest.raises(
        InputError, match=r"^x\.json: `model_type` is `vit`; known: .*`deepseek_v3`, .*`whisper`.*\n\nhint: "
    ):
        read_config({"model_type": "vit"}, where="x.json")
    with pytest.raises(InputError, match=r"^config: `model_type` is missing; known: "):
        read_config({"hidden_size": 3})
    with pytest.raises(InputError, match=r"^config: `model_type` is \[1\]; known: "):
        read_config({"model_type": [1]})
    with pytest.raises(InputError, match=r"^config: the config is a list of 9, expected an object"):
        read_config([0] * 9)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`text_config` is missing, expected the config of the `gemma3_text` decoder"):
        read_config({"model_type": "gemma3"})


def test_t5_asks_for_its_source() -> None:
    with pytest.raises(InputError, match=r"`source` is not given, .*\n\nhint: say how many: --source 512"):
        read_config({"model_type": "t5"})


NUMBERS = [
    (family, name)
    for family, config in CONFIGS.items()
    for name, value in config.get("text_config", config).items()
    if type(value) is int
]
# Numbers of rules that reach past the last of five layers say what others that reach past it say.
SAME = {"max_window_layers": 5, "sliding_window_pattern": 6, "decoder_sparse_step": 6, "moe_layer_freq": 5}


@pytest.mark.parametrize(("family", "name"), NUMBERS)
@given(value=st.one_of(st.integers(-2, 130), st.sampled_from([2**40, "8", 8.0, True, None, [8], {}])))
def test_a_changed_number_changes_the_decoder_or_is_refused(family: str, name: str, value: object) -> None:
    before, facts = read_facts(CONFIGS[family], source=17 if family == "t5" else None)
    old = CONFIGS[family].get("text_config", CONFIGS[family])[name]
    try:
        after = read(family, **{name: value})
    except InputError:
        assert type(value) is not int or value != old
        return
    if any(fact.source == name and fact.note for fact in facts):
        return  # set aside, and the facts say why
    assert value is None or type(value) is int
    if value is None or value == old:
        return
    assert after != before or (name in SAME and min(value, old) >= SAME[name])


def test_null_means_something_for_these_fields_only() -> None:
    taken = set()
    for family, name in NUMBERS:
        try:
            read(family, **{name: None})
        except InputError:
            continue
        taken.add(name)
    assert taken == {
        *("num_key_value_heads", "num_kv_heads"),  # as many as heads
        *("head_dim", "n_inner", "ffn_hidden_size", "num_decoder_layers"),  # made from other fields
        *("sliding_window", "q_lora_rank", "n_shared_experts"),  # none
        *("encoder_layers", "encoder_attention_heads"),  # set aside
    }
