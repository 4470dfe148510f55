"""What is read of every architecture, pinned: a change of the readers names the architectures it changes.

`PYTHONPATH=tests python tests/zoo/test_read_pinned.py` pins what is read now; `kvtally facts NAME` shows what a
digest stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import transformers

from kvtally.core.errors import KvtallyError
from kvtally.live.zoo import names
from kvtally.live.zoo_shrink import shrunk
from kvtally.live.zoo_sizes import SOURCE
from kvtally.pure import catalogue
from kvtally.pure.config import read_facts
from kvtally.pure.described import describe
from kvtally.pure.model import find_config
from pinned import digest
from property.test_every_field import ODD, contradicted, left_out, others

AGAIN = "see `kvtally facts`; run: PYTHONPATH=tests python tests/zoo/test_read_pinned.py"
ALL_THERE = {"no_op": False, "replace_with_linear": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "cohere2, layer_types and a pattern": {
        "model_type": "cohere2",
        "sliding_window_pattern": 3,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 4,
    },
    "gemma3_text, layer_types and a pattern": {
        "model_type": "gemma3_text",
        "sliding_window_pattern": 3,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 4,
    },
    "ministral, sliding": {"model_type": "ministral", "sliding_window": 99},
    "ministral, not sliding": {"model_type": "ministral", "sliding_window": None},
    "smollm3, a window that is off": {
        "model_type": "smollm3",
        "use_sliding_window": False,
        "sliding_window": 99,
        "max_window_layers": 3,
    },
    "smollm3, a window that is on": {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 99},
    "jamba, one expert": {"model_type": "jamba", "num_experts": 1, "num_experts_per_tok": 1},
    "nemotron_h, both lists": {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M*-",
        "layers_block_type": ["mamba", "attention", "mlp"],
        "num_hidden_layers": 3,
    },
    "nemotron_h, an empty list": {"model_type": "nemotron_h", "layers_block_type": [], "num_hidden_layers": 0},
    "mpt, one KV head": {"model_type": "mpt", "attn_config": {"attn_type": "multiquery_attention"}},
    "mpt, a prefix": {"model_type": "mpt", "attn_config": {"prefix_lm": True}},
    "moshi, an MLP of 2": {"model_type": "moshi", "ffn_dim": 2},
    "xlstm, keys that do not divide": {"model_type": "xlstm", "hidden_size": 48, "num_heads": 5},
    "xlstm, values that do not divide": {
        "model_type": "xlstm",
        "hidden_size": 96,
        "num_heads": 8,
        "qk_dim_factor": 0.5,
        "v_dim_factor": 0.52,
    },
    "qwen2_moe, max_window_layers -1": {
        "model_type": "qwen2_moe",
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": -1,
    },
    "musicgen_melody_decoder, cross attention": {"model_type": "musicgen_melody_decoder", "add_cross_attention": True},
    "musicgen_decoder, a source": {
        "model_type": "musicgen_decoder",
        "cross_attention_hidden_size": 9,
        "audio_encoder_hidden_size": 11,
    },
    "llama4_text, too few no_rope_layers": {
        "model_type": "llama4_text",
        "num_hidden_layers": 4,
        "no_rope_layers": [1, 0],
        "layer_types": ["full_attention"] * 4,
    },
    "llama4_text, too few layer_types": {
        "model_type": "llama4_text",
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 3,
    },
    "laguna, a gate a head": {"model_type": "laguna", "gating": "per-head"},
    "laguna, a gate an element": {"model_type": "laguna", "gating": "per-element"},
    "bailing_hybrid, one dense layer": {"model_type": "bailing_hybrid", "first_k_dense_replace": 1},
    "deepseek_v4, hashed layers": {"model_type": "deepseek_v4"},
    "minimax_text_01, no types": {"model_type": "minimax_text_01", "num_hidden_layers": 2},
    "minimax_text_01, one type": {"model_type": "minimax_text_01", "num_hidden_layers": 2, "attn_type_list": [1]},
    "inkling_text, both widths": {"model_type": "inkling_text", "moe_intermediate_size": 77, "intermediate_size": 77},
    "dots3_note_text, no indexer": {"model_type": "dots3_note_text"},
    "chatglm, many KV heads": {
        "model_type": "chatglm",
        "num_layers": 2,
        "hidden_size": 48,
        "num_attention_heads": 6,
        "kv_channels": 8,
        "multi_query_attention": False,
        "multi_query_group_num": 2,
        "ffn_hidden_size": 70,
        "padded_vocab_size": 99,
    },
    "nemotron-nas, blocks": {
        "model_type": "nemotron-nas",
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "vocab_size": 99,
        "intermediate_size": None,
        "num_key_value_heads": None,
        "block_configs": [
            {"attention": {"n_heads_in_group": 3, **ALL_THERE}, "ffn": {"ffn_mult": 2.0, **ALL_THERE}},
            {"attention": {"n_heads_in_group": 4, **ALL_THERE}, "ffn": {"ffn_mult": 2.0, **ALL_THERE}},
        ],
    },
    "zaya, sliding": {"model_type": "zaya", "layer_types": ["hybrid", "hybrid_sliding"] * 20, "sliding_window": 7},
    "minimax_m2, types": {"model_type": "minimax_m2", "num_hidden_layers": 2, "attn_type_list": [1, 1]},
    "dbrx, parts": {"model_type": "dbrx", "attn_config": {}, "ffn_config": {}},
    "kimi_linear, few fields": {"model_type": "kimi_linear", "num_nextn_predict_layers": 1},
    "llama, a flag for a number": {"model_type": "llama", "num_hidden_layers": True},
    "gemma3n_text, a true share": {"model_type": "gemma3n_text", "activation_sparsity_pattern": [True] * 35},
}
PUBLISHED = {name: dict(find_config(name)[0]) for name in catalogue.names()} | VARIANTS
PINNED = Path(__file__).parents[1] / "data" / "read_pinned.json"


def variant(config: dict[str, Any]) -> str:
    """The refusal, or the digest."""
    try:
        return digest([read(config)])
    except KvtallyError as error:
        return str(error).splitlines()[0]


def read(config: dict[str, Any]) -> str:
    """The decoder and its facts."""
    decoder, facts = read_facts(config, source=SOURCE if config.get("is_encoder_decoder") else None)
    return repr((describe(decoder), facts))


def _said(config: dict[str, Any]) -> str:
    """What is read, or the refusal."""
    try:
        return read(config)
    except KvtallyError as error:
        return str(error)


def changed(name: str) -> str:
    """A digest of what the fields of the tiny config lead to, changed alone."""
    try:
        config = shrunk(name).to_dict()
    except Exception as error:  # whatever a config class makes of itself
        return type(error).__name__
    return digest(changes(config))


def changes(config: dict[str, Any]) -> Iterator[str]:
    """What each field of a config leads to, changed alone, and each field of its parts."""
    yield from _changes(config, lambda own: own)
    for part, inner in config.items():
        if isinstance(inner, dict):
            yield from _changes(inner, lambda own, part=part: config | {part: own})


def _changes(own: dict[str, Any], whole: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[str]:
    """What every field of `own` leads to, changed alone, in the config that `whole` makes of it; and each left out."""
    every = own | left_out(own, lambda asked: read(whole(asked)))
    named = sorted(every.items(), key=lambda item: str(item[0]))  # a config class may order its parts by chance
    each = ((name, other) for name, value in named for other in (*others(value), *ODD))
    return (f"{name} {other!r} {_said(whole(own | {name: other}))}" for name, other in each)


def both(name: str) -> list[str]:
    """Of the class's defaults, and of the tiny config."""
    found = []
    for make in (transformers.CONFIG_MAPPING[name], lambda: shrunk(name)):
        try:
            config = make().to_dict()
        except Exception as error:  # whatever a config class makes of itself
            found.append(type(error).__name__)
        else:
            found.append(digest([_said(config)]))
    return found


def pinned() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PINNED.read_text())
    if found["transformers"] != transformers.__version__:
        pytest.skip(f"pinned for transformers {found['transformers']}")
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_changed_field_of_a_published_config_leads_to_what_it_did(name: str) -> None:
    assert digest(changes(PUBLISHED[name])) == pinned()["published"][name], AGAIN


@pytest.mark.parametrize("name", VARIANTS)
def test_fields_that_bear_on_each_other_read_as_they_did(name: str) -> None:
    assert variant(VARIANTS[name]) == pinned()["variants"][name]


@pytest.mark.parametrize("name", [*names(), *PUBLISHED])
def test_a_field_that_is_set_aside_changes_nothing(name: str) -> None:
    config = PUBLISHED[name] if name in PUBLISHED else shrunk(name).to_dict()
    for own in (config, *(config[part] for part in ("text_config", "decoder") if isinstance(config.get(part), dict))):
        with suppress(KvtallyError):
            assert contradicted(own) == []


@pytest.mark.parametrize("name", names())
def test_an_architecture_reads_as_it_did(name: str) -> None:
    assert both(name) == pinned()["read"][name], AGAIN


@pytest.mark.parametrize("name", names())
def test_a_changed_field_of_a_tiny_config_leads_to_what_it_did(name: str) -> None:
    assert changed(name) == pinned()["changed"][name], AGAIN


def lines(rows: dict[str, Any]) -> str:
    """JSON, a line for each."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n}"


if __name__ == "__main__":
    pins, variants = {n: both(n) for n in names()}, {n: variant(config) for n, config in VARIANTS.items()}
    published = {n: digest(changes(config)) for n, config in PUBLISHED.items()}
    tables = {"variants": variants, "published": published, "read": pins, "changed": {n: changed(n) for n in names()}}
    known = ", ".join(f'"{name}": {lines(rows)}' for name, rows in tables.items())
    PINNED.write_text(f'{{"transformers": "{transformers.__version__}", {known}}}\n')
