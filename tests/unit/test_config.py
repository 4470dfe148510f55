"""Every family against decoders typed by hand, real files, and the classes of transformers."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass
from kvtally.pure.config import WITH_ENCODER, read_config, read_facts
from kvtally.pure.config_fields import BEARS, CLASS_DEFAULT, config_class
from kvtally.pure.count_closed import count

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "facts"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of shared facts (KVTALLY_SHARED)")

# One small config of each family, in the words of its files.
CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("family_configs.json").read_text())

GQA = Attention(num_heads=6, num_kv_heads=2, head_dim=10)
SLIDES = Attention(num_heads=6, num_kv_heads=2, head_dim=10, window=7)
MHA = Attention(num_heads=6, num_kv_heads=6, head_dim=8)
WIDE, PLAIN = Mlp(width=70), Mlp(width=70, gated=False)
EIGHT = Experts(num_experts=8, per_token=3, width=70)
LATENT = LatentAttention(
    num_heads=6, q_lora_rank=14, kv_lora_rank=12, qk_rope_head_dim=4, qk_nope_head_dim=9, v_head_dim=11
)


def layers(mixers: list[Any], mlps: list[Any]) -> tuple[Layer, ...]:
    return tuple(Layer(mixer=m, mlp=p) for m, p in zip(mixers, mlps, strict=True))


BY_HAND: dict[str, tuple[Layer, ...]] = {
    "llama": layers([GQA] * 5, [WIDE] * 5),
    "mistral": layers([SLIDES] * 5, [WIDE] * 5),
    "qwen2": layers([GQA] * 3 + [SLIDES] * 2, [WIDE] * 5),
    "qwen3": layers([GQA] * 3 + [SLIDES] * 2, [WIDE] * 5),
    "gemma2": layers([SLIDES, GQA, SLIDES, GQA, SLIDES], [WIDE] * 5),
    "gemma3_text": layers([SLIDES, SLIDES, GQA, SLIDES, SLIDES], [WIDE] * 5),
    "gemma3": layers([SLIDES, SLIDES, GQA, SLIDES, SLIDES], [WIDE] * 5),
    "gpt2": layers([MHA] * 5, [PLAIN] * 5),
    "gpt_neox": layers([MHA] * 5, [PLAIN] * 5),
    "falcon": layers([Attention(num_heads=6, num_kv_heads=2, head_dim=8)] * 5, [PLAIN] * 5),
    "RefinedWeb": layers([Attention(num_heads=6, num_kv_heads=2, head_dim=8)] * 5, [Mlp(width=192, gated=False)] * 5),
    "RefinedWebModel": layers(
        [Attention(num_heads=6, num_kv_heads=1, head_dim=8)] * 5, [Mlp(width=192, gated=False)] * 5
    ),
    "mixtral": layers([GQA] * 5, [EIGHT] * 5),
    "qwen3_moe": layers([GQA] * 5, [WIDE, Experts(num_experts=8, per_token=3, width=20), WIDE, WIDE, WIDE]),
    "gpt_oss": layers([SLIDES, GQA, SLIDES, GQA, SLIDES], [EIGHT] * 5),
    "deepseek_v3": layers([LATENT] * 5, [WIDE] * 2 + [Experts(num_experts=8, per_token=3, width=20, shared=40)] * 3),
    "whisper": (Layer(mixer=MHA, mlp=PLAIN, cross=CrossAttention(num_heads=6, num_kv_heads=6, head_dim=8, source=30)),)
    * 5,
    "t5": (
        Layer(
            mixer=Attention(num_heads=6, num_kv_heads=6, head_dim=10),
            mlp=PLAIN,
            cross=CrossAttention(num_heads=6, num_kv_heads=6, head_dim=10, source=17),
        ),
    )
    * 5,
}


def read(family: str, source: int | None = None, **changes: Any) -> Decoder:
    """The decoder of a family's config with some fields changed; `...` takes a field out."""
    config = deepcopy(CONFIGS[family])
    inner = config.get("text_config", config)
    inner |= changes
    for name in [name for name, value in inner.items() if value is ...]:
        del inner[name]
    return read_config(config, source=17 if family == "t5" and source is None else source)


@pytest.mark.parametrize("family", BY_HAND)
def test_family_by_hand(family: str) -> None:
    assert read(family) == Decoder(hidden_size=48, vocab_size=101, layers=BY_HAND[family])


class TestWhatAFieldMeans:
    def test_no_kv_heads_means_as_many_as_heads(self) -> None:
        for absent in (None, ...):
            assert read("llama", num_key_value_heads=absent).layers[0].mixer.num_kv_heads == 6
        assert read("mistral", num_key_value_heads=..., num_attention_heads=16).layers[0].mixer.num_kv_heads == 8

    def test_explicit_head_dim_wins(self) -> None:
        assert read("llama", head_dim=...).layers[0].mixer.head_dim == 8
        assert read("qwen2", head_dim=...).layers[0].mixer.head_dim == 8
        assert read("qwen3", head_dim=...).layers[0].mixer.head_dim == 128  # not 48 / 6: the class says so
        assert read("gpt_oss", head_dim=...).layers[0].mixer.head_dim == 64

    def test_null_window_is_none_and_an_absent_one_the_class_default(self) -> None:
        assert {layer.mixer.window for layer in read("mistral", sliding_window=None).layers} == {None}
        assert {layer.mixer.window for layer in read("mistral", sliding_window=...).layers} == {4096}
        assert {layer.mixer.window for layer in read("mixtral", sliding_window=9).layers} == {9}

    def test_qwen_window_that_is_not_used(self) -> None:
        for family in ("qwen2", "qwen3"):
            assert {layer.mixer.window for layer in read(family, use_sliding_window=False).layers} == {None}
            assert {layer.mixer.window for layer in read(family, use_sliding_window=...).layers} == {None}

    def test_qwen3_moe_slides_everywhere_or_nowhere(self) -> None:
        assert {layer.mixer.window for layer in read("qwen3_moe").layers} == {None}
        slides = read("qwen3_moe", use_sliding_window=True, sliding_window=7, max_window_layers=...)
        assert {layer.mixer.window for layer in slides.layers} == {7}

    def test_layer_types_come_before_the_rule(self) -> None:
        kinds = ["sliding_attention"] + ["full_attention"] * 4
        for family in ("qwen2", "qwen3", "gemma2", "gpt_oss"):
            assert [layer.mixer.window for layer in read(family, layer_types=kinds).layers] == [7] + [None] * 4
        assert read("llama", layer_types=["full_attention"] * 5) == read("llama")
        assert read("mistral", layer_types=["sliding_attention"] * 5) == read("mistral")

    def test_gemma3_without_a_pattern_sees_everything_every_sixth_layer(self) -> None:
        decoder = read("gemma3", num_hidden_layers=13, sliding_window_pattern=...)
        assert [i for i, layer in enumerate(decoder.layers) if layer.mixer.window is None] == [5, 11]

    def test_gemma3_takes_what_its_file_leaves_out_from_the_class(self) -> None:
        assert read("gemma3", vocab_size=...).vocab_size == 262208

    def test_gpt2_width_is_four_times_hidden(self) -> None:
        for absent in (None, ...):
            assert read("gpt2", n_inner=absent).layers[0].mlp == Mlp(width=192, gated=False)

    def test_falcon_heads(self) -> None:
        for said in (None, 1, 6):
            one = read("falcon", new_decoder_architecture=False, multi_query=True, num_kv_heads=said)
            assert one.layers[0].mixer.num_kv_heads == 1
        many = read("falcon", new_decoder_architecture=False, multi_query=False, num_kv_heads=None)
        assert many.layers[0].mixer.num_kv_heads == 6
        assert read("falcon", ffn_hidden_size=None).layers[0].mlp.width == 192

    def test_mixture_without_experts_is_dense(self) -> None:
        assert {layer.mlp for layer in read("qwen3_moe", num_experts=0).layers} == {WIDE}

    def test_deepseek_without_a_query_rank_or_shared_experts(self) -> None:
        decoder = read("deepseek_v3", q_lora_rank=None, n_shared_experts=None)
        assert decoder.layers[0].mixer.q_lora_rank is None
        assert decoder.layers[4].mlp.shared == 0

    def test_deepseek_every_second_layer(self) -> None:
        dense = [layer.mlp == WIDE for layer in read("deepseek_v3", moe_layer_freq=2).layers]
        assert dense == [True, True, False, True, False]

    def test_t5_gate_and_depth(self) -> None:
        assert read("t5", feed_forward_proj="gated-gelu").layers[0].mlp == Mlp(width=70, gated=True)
        assert len(read("t5", num_decoder_layers=None).layers) == 3

    def test_source(self) -> None:
        assert read("whisper", source=20).layers[0].cross.source == 20
        assert read("t5", source=9).layers[0].cross.source == 9


def test_facts_tell_where_they_came_from() -> None:
    _, facts = read_facts({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_key_value_heads": None}})
    said = {fact.name: (fact.value, fact.source) for fact in facts}
    assert said["hidden_size"] == (2560, "text_config.hidden_size")
    assert said["num_attention_heads"] == (8, CLASS_DEFAULT)
    assert said["num_key_value_heads"] == (8, "num_attention_heads")
    assert said["layer_types"] == ("full_attention every 6, else sliding_attention", CLASS_DEFAULT)


def test_facts_name_what_is_set_aside() -> None:
    config = {"model_type": "deepseek_v3", **CONFIGS["deepseek_v3"], "num_nextn_predict_layers": 1}
    _, facts = read_facts(config)
    assert [(f.name, f.note) for f in facts if f.note] == [("num_nextn_predict_layers", "draft layers, not counted")]


@needs_shared
def test_real_files_hold_what_was_published() -> None:
    sizes = json.loads((SHARED / "sizes_32768_bf16.json").read_text())
    files = sorted((SHARED / "configs").glob("*.json"))
    for path in files:
        decoder = read_config(json.loads(path.read_text()), where=path.name)
        # The published sizes are of bfloat16 with recurrent states in float32; that of whisper is of self
        # attention: K and V of the encoder's output add to it.
        states = sum(mixer.recurrent_state for layer in decoder.layers for mixer in layer.mixers)
        cross = sum(2 * c.num_kv_heads * c.head_dim * c.source for layer in decoder.layers if (c := layer.cross))
        assert 2 * (decoder.held(32768) - states - cross) + 4 * states == sizes[path.stem], path.name
    assert len(files) >= 59


@needs_shared
@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("mistralai--Mixtral-8x7B-v0.1", 3_280_818_143_232),
        ("Qwen--Qwen3-30B-A3B", 804_433_952_768),
        ("openai--gpt-oss-20b", 936_313_356_288),
        ("deepseek-ai--DeepSeek-V3", 9_539_642_458_112),
    ],
)
def test_real_files_cost_what_was_traced(name: str, macs: int) -> None:
    decoder = read_config(json.loads((SHARED / "configs" / f"{name}.json").read_text()))
    assert count(decoder, [Pass(new=256, logits=256)], kernel="dense").total == macs


DEFAULTS = [family for family in BY_HAND if not family.startswith("RefinedWeb")]


@pytest.mark.parametrize("family", DEFAULTS)
def test_a_config_class_with_its_defaults_reads_like_an_empty_file(family: str) -> None:
    """What transformers writes for a default config, every derived field spelled out, is the same decoder."""
    auto = pytest.importorskip("transformers").AutoConfig
    source = 40 if family in WITH_ENCODER else None
    written = read_config(json.loads(auto.for_model(family).to_json_string(use_diff=False)), source=source)
    bare = {"model_type": family} | ({"text_config": {}} if family == "gemma3" else {})
    assert written == read_config(bare, source=source)


@pytest.mark.parametrize("family", [f for f in DEFAULTS if f != "gemma3"])
def test_our_class_defaults_are_those_of_transformers(family: str) -> None:
    mapping = pytest.importorskip("transformers").CONFIG_MAPPING
    ours, theirs = config_class(family), mapping[family]
    fields = {name: field.default for name, field in theirs.__dataclass_fields__.items()}
    for name, value in ours.defaults.items():
        if name in fields:
            assert (name, fields[name]) == (name, value)
        else:
            assert (name, value) == ("head_dim", None)  # the model itself falls back to hidden_size / heads
    for common, own in theirs.attribute_map.items():
        if BEARS.search(common) and own in ours.defaults:
            assert own in (common, *ours.names.get(common, ())) or common in ours.names.get(
                "num_experts", ("num_experts",)
            )
