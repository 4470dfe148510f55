"""BERT and its kin as causal decoders: typed by hand, with the matrices outside their layers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Mlp
from kvtally.core.passes import Pass
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config
from kvtally.pure.config_bert import FAMILIES
from kvtally.pure.count_closed import count

MHA, PLAIN = Attention(num_heads=6, num_kv_heads=6, head_dim=8), Mlp(width=70, gated=False)
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "vocab_size": 101, "num_hidden_layers": 5, "num_attention_heads": 6, "intermediate_size": 70,
    "is_decoder": True,
}  # fmt: skip
LIKE_BERT = (
    "bert", "big_bird", "camembert", "data2vec-text", "ernie", "megatron-bert", "roberta", "roberta-prelayernorm",
    "roformer", "xlm-roberta", "xlm-roberta-xl",
)  # fmt: skip
CROSSING = sorted(set(FAMILIES) - {"git"})  # all that can attend to an encoder


def read(family: str, source: int | None = None, **changes: Any) -> Decoder:
    given = {k: v for k, v in CONFIG.items() if k != "is_decoder" or family != "git"}
    return read_config({"model_type": family, **given, **changes}, source=source)


def decoder(layer: Layer = Layer(mixer=MHA, mlp=PLAIN), **outside: Any) -> Decoder:  # noqa: B008
    return Decoder(hidden_size=48, vocab_size=101, layers=(layer,) * 5, **outside)


@pytest.mark.parametrize("family", LIKE_BERT)
def test_logits_come_after_a_transform(family: str) -> None:
    assert read(family) == decoder(head=((48, 48),))


@pytest.mark.parametrize("family", ["bert-generation", "git"])
def test_logits_come_at_once(family: str) -> None:
    assert read(family) == decoder()


class TestOutsideTheLayers:
    def test_narrow_embeddings(self) -> None:
        for family in ("electra", "roformer"):
            assert read(family, embedding_size=20) == decoder(outside=((20, 48),), head=((48, 20),))
            assert read(family, embedding_size=48) == decoder(head=((48, 48),))
        assert read("roformer", embedding_size=None) == decoder(head=((48, 48),))

    def test_the_output_head_reads_what_the_transform_gives(self) -> None:
        macs = count(read("electra", embedding_size=20), [Pass(new=3, logits=2)]).by("term")
        found = macs[Term.embed_proj], macs[Term.head_proj], macs[Term.lm_head]
        assert found == (3 * 20 * 48, 2 * 48 * 20, 2 * 20 * 101)

    def test_rembert_has_a_width_for_each_end(self) -> None:
        both = {"input_embedding_size": 20, "output_embedding_size": 90}
        assert read("rembert", **both) == decoder(outside=((20, 48),), head=((48, 90),))

    def test_roc_bert_joins_character_sound_and_shape(self) -> None:
        sizes = {"pronunciation_embed_dim": 7, "shape_embed_dim": 9}
        assert read("roc_bert", **sizes).outside == ((48 + 7 + 9, 48),)
        assert read("roc_bert", **sizes, enable_shape=False).outside == ((48 + 7, 48),)
        assert read("roc_bert", **sizes, enable_pronunciation=False).outside == ((48 + 9, 48),)
        assert read("roc_bert", concat_input=False) == decoder(head=((48, 48),))

    def test_xmod_has_an_adapter_in_every_layer(self) -> None:
        adapter = Recurrent(matrices=((Term.extra_proj, None, 9), (Term.extra_proj, 9, None)))  # 48 // 5
        layer = Layer(mixer=MHA, mlp=PLAIN, beside=(adapter,))
        assert read("xmod", adapter_reduction_factor=5) == decoder(layer, head=((48, 48),))
        with pytest.raises(InputError, match="`adapter_reduction_factor` is 49"):
            read("xmod", adapter_reduction_factor=49)


@pytest.mark.parametrize("family", CROSSING)
def test_an_encoder_is_refused(family: str) -> None:
    for said, is_decoder in (("false", {"is_decoder": False}), ("false by class default", {})):
        config = {k: v for k, v in CONFIG.items() if k != "is_decoder"}
        with pytest.raises(
            InputError, match=f"`is_decoder` is {said}, expected true: otherwise every token sees later"
        ):
            read_config({"model_type": family, **config, **is_decoder})


@pytest.mark.parametrize("family", CROSSING)
def test_attention_to_an_encoder(family: str) -> None:
    cross = CrossAttention(num_heads=6, num_kv_heads=6, head_dim=8, source=17)
    assert {layer.cross for layer in read(family, 17, add_cross_attention=True).layers} == {cross}
    with pytest.raises(InputError, match="`source` is not given"):
        read(family, add_cross_attention=True)
    with pytest.raises(InputError, match=f"`source` is 17, and `{family}` has no encoder"):
        read(family, 17)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_writes_for_a_default_config_reads_like_an_empty_file(family: str) -> None:
    auto = pytest.importorskip("transformers").AutoConfig
    decides = {} if family == "git" else {"is_decoder": True}
    written = json.loads(auto.for_model(family, **decides).to_json_string(use_diff=False))
    assert read_config(written) == read_config({"model_type": family, **decides})


def test_a_pooler_is_set_aside_and_other_heads_are_not() -> None:
    assert read("bert", pooler_num_attention_heads=12, pooler_fc_size=768) == read("bert")
    with pytest.raises(InputError, match="`sliding_window` is 7, which bears"):
        read("bert", sliding_window=7)
