"""Bytes measured in a real cache on the meta device: agreement, known deviations, and a cache that differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtally.core.errors import InputError
from kvtally.frontends.cli import main
from kvtally.live import size_measured
from kvtally.live.size_measured import measured_cache
from kvtally.pure.config import read_config
from kvtally.pure.size import size

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 20,
    "vocab_size": 19,
}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 5}
FALCON = {
    "model_type": "falcon",
    "new_decoder_architecture": True,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_kv_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 19,
}
MAMBA2 = {
    "model_type": "mamba2",
    "hidden_size": 24,
    "num_heads": 6,
    "head_dim": 8,
    "state_size": 5,
    "n_groups": 1,
    "num_hidden_layers": 2,
    "vocab_size": 19,
}


@pytest.mark.parametrize(("dtype", "each"), [("bf16", 2), ("fp16", 2), ("fp32", 4)])
@pytest.mark.parametrize("tokens", [1, 7, 200])
def test_a_real_cache_has_the_bytes_that_are_held(dtype: str, each: int, tokens: int) -> None:
    found = measured_cache(LLAMA, tokens, dtype=dtype)
    assert found.agree
    assert not found.deviations
    assert found.bytes == size(read_config(LLAMA), tokens, dtype=dtype).bytes_held == 3 * 2 * tokens * 16 * each


@pytest.mark.parametrize(
    ("config", "tokens", "deviations", "more"),
    [
        (MISTRAL, 4, {}, 0),
        (MISTRAL, 9, {"window - 1": 3}, -3 * 2 * 16 * 2),
        (FALCON, 9, {"3 copies of K and V": 2}, 2 * 2 * 2 * 9 * 16 * 2),
    ],
)
def test_known_deviations_are_named(config: dict[str, Any], tokens: int, deviations: dict[str, int], more: int) -> None:
    found = measured_cache(config, tokens)
    assert found.agree
    assert found.deviations == deviations
    assert found.bytes - size(read_config(config), tokens).bytes_held == more


def test_a_recurrent_layer_keeps_a_tap_more() -> None:
    found = measured_cache(MAMBA2, 9)
    assert found.agree
    assert found.deviations == {"k taps": 2}


def test_a_layer_that_differs_is_named_and_the_answer_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    decoder = read_config(LLAMA)
    one = replace(decoder.layers[1], mixer=replace(decoder.layers[1].mixer, head_dim=9))  # type: ignore[type-var]
    sick = replace(decoder, layers=(decoder.layers[0], one, decoder.layers[2]))
    monkeypatch.setattr(size_measured, "read_config", lambda *_, **__: sick)
    found = measured_cache(LLAMA, 10)
    assert [layer.layer for layer in found.wrong] == [1]
    assert str(found) == ("measured: 1 of 3 layers differ\n  layer 1: 360 elements expected, 320 in the cache")
    import json

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert main(["size", str(tmp_path), "--tokens", "10", "--measure", "--engine", "transformers"]) == 1
    assert "layer 1: 360 elements expected" in capsys.readouterr().out


def test_a_quantised_cache_is_not_measured() -> None:
    with pytest.raises(InputError, match="`dtype` is 'fp8', expected one that a cache of transformers has as it is"):
        measured_cache(LLAMA, 3, dtype="fp8")
