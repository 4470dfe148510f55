"""Attention to an encoder on real models: whole models, decoders alone, composites, images, codebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvtally
from kvtally.core.tally import compare
from kvtally.frontends.cli import main
from kvtally.live import harness
from kvtally.live.count_traced import trace
from kvtally.live.zoo_shrink import shrunk
from kvtally.pure.config import read_config
from kvtally.pure.count_closed import count

ALONE: dict[str, Any] = {"is_encoder_decoder": False}
CROSSES: dict[str, Any] = {"add_cross_attention": True}
CASES: list[tuple[str, dict[str, Any], int | None]] = [
    ("bart", {}, 7),
    ("bart", ALONE, None),
    ("marian", ALONE, 7),
    ("whisper", ALONE, None),
    ("whisper", ALONE, 7),
    ("trocr", {}, None),
    ("trocr", {}, 7),
    ("mt5", {}, 7),
    ("mllama", {}, None),
    ("mllama", {}, 7),
    ("musicgen", {}, 7),
    ("musicgen_melody", {}, None),
    ("moshi", {}, None),
    ("bert", CROSSES, 7),
    ("electra", CROSSES, 7),
    ("rembert", CROSSES, 7),
    ("xmod", CROSSES, 7),
    ("roc_bert", {}, None),
    ("git", {}, None),
]


@pytest.mark.parametrize(("name", "changes", "source"), CASES)
def test_closed_is_traced_and_held_is_what_the_cache_holds(
    name: str, changes: dict[str, Any], source: int | None
) -> None:
    config = shrunk(name)
    for field, value in changes.items():
        setattr(config, field, value)
    decoder = read_config(json.loads(config.to_json_string(use_diff=False)), source=source)
    model = harness.build(config, device="cpu")
    calls = harness.convention(model, source=source)
    lists = kvtally.uncached(9, 3, loop="forward"), kvtally.cached(9, 3), kvtally.chunked(9, 3, chunk=4)
    for passes in (harness.as_run(model, each, calls=calls) for each in lists):
        assert compare(count(decoder, passes, kernel="dense"), trace(model, passes, decoder, calls=calls)).agree
    with harness.as_found(model):
        for step in harness.steps(calls, kvtally.cached(9, 3)):
            step.run()
    layers = [layer for part in calls.parts(step.cache) for layer in part.layers if layer.keys is not None]
    kept = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
    one = sum(sum(layer.mixer.kv_per_token) for layer in decoder.layers if layer.mixer)
    assert kept + (one if name == "moshi" else 0) == decoder.held(11)  # transformers keeps window - 1 tokens


@pytest.mark.parametrize(("name", "source"), [("gpt2", None), ("whisper", 7), ("bart", 7)])
def test_uncached_passes_run_on_the_meta_device(name: str, source: int | None) -> None:
    model = harness.build(shrunk(name), attention="eager")
    logits = harness.run(model, kvtally.uncached(9, 3, loop="forward"), source=source)
    assert [(row.device.type, row.shape[0]) for row in logits] == [("meta", 1)] * 3


def test_a_source_for_a_model_without_an_encoder_is_refused() -> None:
    with pytest.raises(kvtally.KvtallyError, match=r"`source` is 7 and LlamaForCausalLM\.forward takes"):
        harness.convention(harness.build(shrunk("llama")), source=7)


def test_a_composite_without_a_language_model_is_refused() -> None:
    from transformers import AutoConfig

    with pytest.raises(kvtally.KvtallyError, match="`model_type` is `vision-encoder-decoder`, expected one that"):
        harness.build(
            AutoConfig.for_model(
                "vision-encoder-decoder", encoder={"model_type": "vit"}, decoder={"model_type": "trocr"}
            )
        )


def test_falcon_of_the_new_kind_keeps_a_copy_for_each_query_head() -> None:
    falcon = shrunk("falcon")
    falcon.new_decoder_architecture, falcon.num_kv_heads = True, 2
    assert harness.copies_kept(harness.build(falcon)) == falcon.num_attention_heads // 2
    assert harness.copies_kept(harness.build(shrunk("llama"))) == 1


FALCON = {
    "model_type": "falcon", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_kv_heads": 2,
    "new_decoder_architecture": True, "vocab_size": 101,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "d_model": 48, "decoder_layers": 2, "decoder_attention_heads": 6, "decoder_ffn_dim": 70,
    "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 50, "max_source_positions": 30,
    "vocab_size": 50400,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "said"),
    [(FALCON, "which keeps 3 copies of K and V, one for each query head: compared with as many"), (WHISPER, "agree: ")],
)
def test_against_traced_agrees(
    config: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert main(["count", str(path), "--prompt", "5", "--new", "3", "--against", "traced"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
