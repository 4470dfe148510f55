"""Configs of remote code, read from the JSON alone: typed by hand, from the words of their own files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config

GQA = Attention(num_heads=6, num_kv_heads=2, head_dim=10)
MHA = Attention(num_heads=6, num_kv_heads=6, head_dim=8)
SQUARE = Layer(beside=(Recurrent(matrices=((Term.extra_proj, None, None),)),))  # a matrix in a mixer's or MLP's place


def read(family: str, **fields: Any) -> Decoder:
    """The decoder of a small config with these fields over it; `...` takes a field out."""
    config = {
        "model_type": family, "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 70,
    } | fields  # fmt: skip
    return read_config({name: value for name, value in config.items() if value is not ...})


def test_openelm_has_a_size_for_each_layer() -> None:
    config = {"model_type": "openelm", "vocab_size": 101, "model_dim": 48, "num_transformer_layers": 3}
    config |= {"head_dim": 10, "num_query_heads": [2, 4, 6], "num_kv_heads": [1, 2, 3], "ffn_dim_divisor": 8}
    decoder = read_config(config | {"ffn_multipliers": [0.5, 1.7, 4.0]})
    assert [layer.mixer.num_kv_heads for layer in decoder.layers] == [1, 2, 3]
    assert [layer.mlp.width for layer in decoder.layers] == [24, 80, 192]  # 1.7 * 48 = 81.6, to a multiple of 8
    assert read_config(config | {"ffn_multipliers": [0.5, 4.0]}).layers[1].mlp.width == 112  # 2.25 * 48 = 108


def test_blocks_of_nemotron_nas() -> None:
    here = {"no_op": False, "replace_with_linear": False}
    gone, line = {"no_op": True, "replace_with_linear": False}, {"no_op": False, "replace_with_linear": True}
    blocks = [
        {"attention": here | {"n_heads_in_group": 3}, "ffn": here | {"ffn_mult": 2.5}},
        {"attention": gone | {"n_heads_in_group": None}, "ffn": line | {"ffn_mult": None}},
        {"attention": line, "ffn": gone},
    ]
    decoder = read(
        "nemotron-nas", num_hidden_layers=3, num_key_value_heads=None, intermediate_size=None, head_dim=...,
        block_configs=blocks,
    )  # fmt: skip
    assert decoder.layers == (
        Layer(mixer=replace(MHA, num_kv_heads=2), mlp=Mlp(width=256)),  # 2 * 2.5 * 48 / 3 = 80, up to 256
        SQUARE,
        SQUARE,
    )
    blocks[0]["attention"]["sparsify"] = "yes"
    with pytest.raises(InputError, match=r"sparsify` is \"yes\", expected null"):
        read("nemotron-nas", num_hidden_layers=3, head_dim=..., block_configs=blocks)


def test_mimo_7b_and_deci() -> None:
    assert (
        read("mimo", num_nextn_predict_layers=1, sliding_window=9).layers == (Layer(mixer=GQA, mlp=Mlp(width=70)),) * 5
    )
    deci = read("deci", num_key_value_heads_per_layer=[1, 2, 3, 6, 1], num_key_value_heads=..., head_dim=...)
    assert [layer.mixer.num_kv_heads for layer in deci.layers] == [1, 2, 3, 6, 1]
