"""`kvtally facts`: every fact with its source, what was set aside, and the kinds of layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from kvtally import Decoder, read_described, read_model
from kvtally.frontends.cli import main
from kvtally.frontends.facts import ModelFacts, as_text
from strategies import decoders


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["facts", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def lines(text: str) -> set[str]:
    return {" ".join(line.split()) for line in text.splitlines()}


def test_a_fact_names_the_field_or_the_class_default(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(printed(capsys, "gemma-2-9b"))
    assert "sliding_window 4096 sliding_window" in found
    assert 'layer_types "full_attention every 2, else slidi… class default' in found
    assert "21 attention + mlp, at most 4,096 tokens 4,096 0" in found  # 2 * 8 heads * 256


def test_what_is_set_aside_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "qwen2", "use_sliding_window": false, "sliding_window": 99, "max_window_layers": 2}'
    )
    found = printed(capsys, str(path))
    assert "sliding_window 99 use_sliding_window is false" in lines(found.partition("set aside")[2])


def test_json_is_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(printed(capsys, "deepseek-v3", "--format", "json"))
    assert read_described(found["decoder"]) == read_model("deepseek-v3")
    assert {"name": "num_experts", "value": 256, "source": "n_routed_experts", "note": ""} in found["facts"]
    assert [kind["kv_elements_a_token"] for kind in found["layers"]] == [576, 576]
    assert sum(kind["layers"] for kind in found["layers"]) == 61


def test_markdown_has_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert "| num_hidden_layers | 12 | n_layer |" in printed(capsys, "gpt2", "--format", "md").splitlines()


def test_a_gguf_file_names_its_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf = pytest.importorskip("gguf", reason="needs the gguf package to write files")
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    sizes = {"block_count": 6, "embedding_length": 24, "feed_forward_length": 40, "attention.head_count": 6,
             "attention.sliding_window": 11, "vocab_size": 31}  # fmt: skip
    for key, value in sizes.items():
        writer.add_uint32(f"gemma3.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found = lines(printed(capsys, str(path)))
    assert "block_count 6 gemma3.block_count" in found
    assert "attention.sliding_window_pattern 6 hard-coded for arch gemma3" in found
    assert "5 attention + mlp, at most 11 tokens 48 0" in found


@settings(max_examples=60, deadline=None)
@given(decoders())
def test_the_kinds_of_layers_are_all_of_them(decoder: Decoder) -> None:
    found = ModelFacts(decoder=decoder, facts=())
    assert sum(kind.layers for kind in found.kinds) == len(decoder.layers)
    assert sum(kind.layers * kind.state_elements for kind in found.kinds) == sum(
        mixer.state for layer in decoder.layers for mixer in layer.mixers
    )
    assert as_text(found, "table", on=False).startswith("layers")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gpt2 --format csv", "`--format` is 'csv'; known: `json`, `md`, `table`"),
        ("t5-base --source many", "`--source` is 'many', expected an integer of at least 1"),
        ("gpt2 --source 5", "gpt2: `source` is 5, and `gpt2` has no encoder\n\nhint: leave it out"),
        ("", "kvtally facts: missing argument `MODEL`\n\nhint: kvtally facts --help lists every option"),
    ],
)
def test_a_wrong_question_gets_this_message(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", *words.split()]) == 2
    assert capsys.readouterr().err == message + "\n"
