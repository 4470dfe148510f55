"""Decoders with attention to an encoder, whole and alone: typed by hand, with the numbers that follow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Mlp
from kvtally.core.passes import Pass
from kvtally.core.tally import Term
from kvtally.pure import config_audio as audio
from kvtally.pure import config_encoder_decoder as encoder_decoder
from kvtally.pure.config import read_config, read_facts
from kvtally.pure.config_encoder_decoder import WITH_ENCODER
from kvtally.pure.count_closed import count

MHA, PLAIN = Attention(num_heads=6, num_kv_heads=6, head_dim=8), Mlp(width=70, gated=False)
TO_17 = CrossAttention(num_heads=6, num_kv_heads=6, head_dim=8, source=17)
WHOLE, ALONE = Layer(mixer=MHA, cross=TO_17, mlp=PLAIN), Layer(mixer=MHA, mlp=PLAIN)

LIKE_BART = ("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart")
BART: dict[str, Any] = {
    "d_model": 48, "vocab_size": 101, "decoder_layers": 5, "decoder_attention_heads": 6, "decoder_ffn_dim": 70,
    "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 50,
}  # fmt: skip
AUDIO: dict[str, Any] = {
    "hidden_size": 48, "vocab_size": 101, "num_hidden_layers": 5, "num_attention_heads": 6, "ffn_dim": 70
}  # fmt: skip
MLLAMA: dict[str, Any] = {
    "hidden_size": 48, "vocab_size": 101, "num_hidden_layers": 5, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 70,
}  # fmt: skip


def decoder(*layers: Layer, vocab_size: int = 101) -> Decoder:
    return Decoder(hidden_size=48, vocab_size=vocab_size, layers=layers)


def read(model_type: str, config: dict[str, Any], source: int | None = None, **changes: Any) -> Decoder:
    return read_config({"model_type": model_type, **config, **changes}, source=source)


@pytest.mark.parametrize("family", LIKE_BART)
def test_whole_attends_to_the_encoder_and_alone_does_not(family: str) -> None:
    assert read(family, BART, 17) == decoder(*[WHOLE] * 5)
    assert read(family, BART, is_encoder_decoder=False) == decoder(*[ALONE] * 5)
    assert read(family, BART, 17, is_encoder_decoder=False) == decoder(*[WHOLE] * 5)  # alone in a composite


def test_cross_attention_holds_its_source_from_the_first_pass_on() -> None:
    whole = read("bart", BART, 17)
    assert whole.held(10) == 5 * (96 * 10 + 96 * 17)
    first, later = (count(whole, [p]).by("term") for p in (Pass(new=3), Pass(new=1, past=3)))
    assert (first[Term.cross_k_proj], later.get(Term.cross_k_proj)) == (5 * 48 * 48 * 17, None)
    assert (first[Term.cross_qk], later[Term.cross_qk]) == (5 * 48 * 17 * 3, 5 * 48 * 17)


@pytest.mark.parametrize("family", sorted(set(WITH_ENCODER) - {"whisper"}))
def test_how_long_the_source_is_must_be_said(family: str) -> None:
    with pytest.raises(InputError, match=rf"^config: `source` is not given, and a `{family}` config does not fix"):
        read_config({"model_type": family, "decoder": {}})


def test_whisper_alone() -> None:
    config = {**BART, "max_source_positions": 17}
    assert read("whisper", config) == decoder(*[WHOLE] * 5)
    assert read("whisper", config, is_encoder_decoder=False) == decoder(*[ALONE] * 5)


def test_marian_without_shared_embeddings_has_a_vocabulary_of_its_own() -> None:
    apart = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 103}
    assert read("marian", BART, 17, **apart).vocab_size == 103
    assert read("marian", BART, 17, **{**apart, "decoder_vocab_size": None}).vocab_size == 101
    assert read("marian", BART, 17, decoder_vocab_size=101).vocab_size == 101


def test_mvp_with_prompts_is_refused() -> None:
    with pytest.raises(InputError, match="`use_prompt` is true, expected false: K and V of prompts are not counted"):
        read("mvp", BART, 17, use_prompt=True)


def test_trocr_reads_an_image_of_another_width() -> None:
    config = {name: value for name, value in BART.items() if name.startswith(("decoder", "d_", "vocab"))}
    assert read("trocr", config) == decoder(*[ALONE] * 5)
    wide = read("trocr", config, 17, cross_attention_hidden_size=20)
    assert wide.layers[4].cross == CrossAttention(num_heads=6, num_kv_heads=6, head_dim=8, source=17, source_size=20)
    macs = count(wide, [Pass(new=1)]).by("term")
    assert (macs[Term.cross_k_proj], macs[Term.cross_q_proj]) == (5 * 20 * 48 * 17, 5 * 48 * 48)


def test_mt5_is_gated_by_class_default() -> None:
    assert {read(f, {}, 9).layers[0].mlp for f in ("mt5", "umt5")} == {Mlp(width=1024, gated=True)}
    with pytest.raises(InputError, match="`is_encoder_decoder` is false, expected true"):
        read("mt5", {}, 9, is_encoder_decoder=False)


class TestMllama:
    OWN = Layer(mixer=Attention(num_heads=6, num_kv_heads=2, head_dim=8), mlp=Mlp(width=70))
    IMAGE = Layer(cross=CrossAttention(num_heads=6, num_kv_heads=2, head_dim=8, source=17), mlp=Mlp(width=70))

    def test_layers_for_images_are_skipped_by_text(self) -> None:
        assert read("mllama_text_model", MLLAMA) == decoder(*[self.OWN] * 3, Layer(), self.OWN)
        assert read("mllama", {"text_config": MLLAMA}).held(10) == 4 * 2 * 16 * 10

    def test_layers_for_images_in_their_place(self) -> None:
        found = read("mllama", {"text_config": {**MLLAMA, "cross_attention_layers": [0, 4]}}, 17)
        assert found == decoder(self.IMAGE, *[self.OWN] * 3, self.IMAGE)

    def test_a_place_beyond_the_last_layer_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"`cross_attention_layers\[1\]` is 5, expected an integer of at least 0"):
            read("mllama_text_model", MLLAMA, cross_attention_layers=[0, 5])


class TestAudio:
    def test_musicgen_has_an_output_head_for_each_codebook(self) -> None:
        assert read("musicgen", {"decoder": {**AUDIO, "num_codebooks": 3}}, 17) == decoder(*[WHOLE] * 5, vocab_size=303)
        assert read("musicgen_decoder", AUDIO) == decoder(*[ALONE] * 5, vocab_size=404)

    def test_melody_reads_its_text_as_a_prefix(self) -> None:
        config = {"decoder": {**AUDIO, "num_codebooks": 1}}
        assert read("musicgen_melody", config) == decoder(*[ALONE] * 5)
        with pytest.raises(InputError, match="`source` is 17, and `musicgen_melody` has no encoder"):
            read("musicgen_melody", config, 17)

    def test_moshi_slides_and_its_first_matrix_is_gate_and_up(self) -> None:
        slides = Attention(num_heads=6, num_kv_heads=6, head_dim=8, window=9)
        assert read("moshi", AUDIO, sliding_window=9) == decoder(*[Layer(mixer=slides, mlp=Mlp(width=35))] * 5)
        with pytest.raises(InputError, match="`ffn_dim` is 71, expected an even number"):
            read("moshi", AUDIO, ffn_dim=71)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "blt"}, "cuts text into patches by their entropy"),
        ({"model_type": "prophetnet", "ngram": 3}, "`ngram` is 3: every token is 4 rows"),
        ({"model_type": "reformer", "attn_layers": ["lsh"]}, "`attn_layers` is `lsh`: keys are sorted into buckets"),
        ({"model_type": "xlm"}, "`causal` is false: tokens see later ones"),
        ({"model_type": "xlm", "causal": True}, "`causal` is true, and still it takes the whole text"),
        ({"model_type": "xlnet"}, '`attn_type` is "bi" by class default: XLNet keeps hidden states'),
    ],
)
def test_what_has_no_keys_and_values_to_count_is_refused_with_the_reason(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(config)
    assert reason in str(caught.value)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize("family", [*encoder_decoder.FAMILIES, *audio.FAMILIES])
def test_what_transformers_writes_for_a_default_config_reads_like_an_empty_file(family: str) -> None:
    mapping = pytest.importorskip("transformers").CONFIG_MAPPING
    if family not in mapping:
        pytest.skip("transformers has this class inside another one only")
    source = 17 if family in WITH_ENCODER else None
    inner = {name: {} for name in ("decoder", "text_config") if family.startswith(("musicgen", "mllama"))}
    written = json.loads(mapping[family]().to_json_string(use_diff=False))
    assert read_config(written, source=source) == read_config({"model_type": family, **inner}, source=source)


def test_facts_say_that_the_encoder_is_set_aside() -> None:
    _, facts = read_facts({"model_type": "bart", **BART}, source=17)
    aside = {fact.name for fact in facts if fact.note}
    assert aside == {"encoder_ffn_dim", "encoder_layers", "encoder_attention_heads"}
