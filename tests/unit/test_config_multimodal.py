"""The decoder inside a model that reads more than text."""

from __future__ import annotations

import pytest

from kvtally import InputError
from kvtally.pure.config import FAMILIES, read_config, read_facts
from kvtally.pure.config_multimodal import DECODERS

SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2}
SIZES |= {"intermediate_size": 70, "vocab_size": 101}


@pytest.mark.parametrize("name", DECODERS)
def test_the_text_is_read_as_the_family_that_it_names(name: str) -> None:
    inner = {"model_type": "llama", **SIZES}
    assert read_config({"model_type": name, "text_config": inner}).layers == read_config(inner).layers


def test_a_text_that_names_no_family_is_that_of_its_class() -> None:
    found, facts = read_facts({"model_type": "mistral3", "text_config": SIZES | {"sliding_window": 7}})
    assert found.layers[0].mixer.window == 7
    assert {fact.source for fact in facts} >= {"text_config.hidden_size", "text_config.sliding_window"}


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_fields_of_the_text_may_stand_beside_the_tower(name: str) -> None:
    tower = {"vision_config": {"hidden_size": 32, "window_size": 9}}
    flat = read_config({"model_type": name, **SIZES, **tower})
    assert flat.layers == read_config({"model_type": name, "text_config": SIZES, **tower}).layers
    assert flat.layers == read_config({"model_type": "qwen2", **SIZES}).layers
    with pytest.raises(InputError, match="`num_ghost_layers` is 3, which bears on the cache"):
        read_config({"model_type": name, **SIZES, "num_ghost_layers": 3})


def test_sizes_of_the_tower_are_set_aside_and_others_refused() -> None:
    config = {"model_type": "lfm2_vl", "text_config": {"model_type": "llama", **SIZES}}
    decoder, facts = read_facts(config | {"projector_hidden_size": 9, "hidden_size": 11})
    assert decoder.hidden_size == 48
    noted = {fact.name: fact.note for fact in facts if fact.note}
    assert noted["projector_hidden_size"] == "of the tower, or of what joins it to the text"
    assert noted["hidden_size"] == "text_config says the decoder's"
    with pytest.raises(InputError, match="`num_ghost_layers` is 3, which bears on the cache"):
        read_config(config | {"num_ghost_layers": 3})


def test_what_is_missing_or_unknown_is_said() -> None:
    with pytest.raises(InputError, match="`text_config` is missing, expected the config of the `llama` decoder"):
        read_config({"model_type": "llava"})
    with pytest.raises(InputError, match=r'`text_config.model_type` is "ghost"; known: '):
        read_config({"model_type": "llava", "text_config": {"model_type": "ghost"}})


def test_a_decoder_inside_an_unknown_model_is_pointed_at() -> None:
    with pytest.raises(InputError) as error:
        read_config({"model_type": "ghost", "text_config": {"model_type": "llama"}})
    assert str(error.value).endswith("hint: its `text_config` is a `llama`, which is read as a config of its own")
    with pytest.raises(InputError, match="hint: describe the layers yourself"):
        read_config({"model_type": "ghost", "text_config": {"model_type": "phantom"}})


def test_every_decoder_that_is_named_is_read() -> None:
    assert set(DECODERS.values()) <= FAMILIES.keys() and DECODERS.keys().isdisjoint(DECODERS.values())
