"""Decoders described by hand: what is written is read back, and what is not known is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from kvtally import (
    Attention,
    Decoder,
    Experts,
    InputError,
    Layer,
    Mlp,
    describe,
    read_config,
    read_described,
    read_model,
)
from kvtally.pure import catalogue
from kvtally.pure.described import MIXERS
from strategies import decoders

ATTENTION: dict[str, Any] = {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
SMALL: dict[str, Any] = {
    "kvtally": 1, "hidden_size": 32, "vocab_size": 100,
    "layers": [{"repeat": 2, "mixer": ATTENTION, "mlp": {"kind": "mlp", "width": 48}},
               {"mixer": ATTENTION | {"window": 5},
                "mlp": {"kind": "experts", "num_experts": 4, "per_token": 2, "width": 9}},
               {"mixer": ATTENTION, "reads": 0}],
}  # fmt: skip


def test_a_description_reads_as_the_records_made_by_hand() -> None:
    mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8)
    windowed = Attention(num_heads=4, num_kv_heads=2, head_dim=8, window=5)
    assert read_described(SMALL) == Decoder(
        hidden_size=32,
        vocab_size=100,
        layers=(
            *(Layer(mixer=mixer, mlp=Mlp(width=48)),) * 2,
            Layer(mixer=windowed, mlp=Experts(num_experts=4, per_token=2, width=9)),
            Layer(mixer=mixer, reads=0),
        ),
    )


@settings(max_examples=150, deadline=None)
@given(decoders())
def test_every_decoder_is_read_back_from_its_description(decoder: Decoder) -> None:
    assert read_described(json.loads(json.dumps(describe(decoder)))) == decoder


@pytest.mark.parametrize("name", ["gemma-2-9b", "deepseek-v3"])
def test_a_real_decoder_is_described_in_few_layers(name: str) -> None:
    decoder = read_model(name)
    described = describe(decoder)
    assert read_described(described) == decoder
    assert described["name"] == name


def test_a_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(SMALL))
    assert read_model(str(path)) == read_described(SMALL) == read_config(path)


def changed(*, layer: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return SMALL | more | ({} if layer is None else {"layers": [layer]})


KINDS = ", ".join(f"`{kind}`" for kind in MIXERS)
REFUSED = [
    (changed(kvtally=2), "`kvtally` is 2, expected 1: how a decoder is described"),
    (changed(kvtally=True), "`kvtally` is true, expected 1: how a decoder is described"),
    (changed(hiden=3),
     "`hiden` is no field of `Decoder`; known: `hidden_size`, `vocab_size`, `outside`, `head`, `name`"),
    (SMALL | {3: 4}, "`3` is no field of `Decoder`; known: "),
    (SMALL | {None: 4}, "`null` is no field of `Decoder`; known: "),
    (changed(layer={"mixer": ATTENTION | {10**5000: 3}}), "`layers[0].mixer.an integer of 16610 bits` is no field of "),
    ({"kvtally": 1, "layers": SMALL["layers"], "vocab_size": 3},
     "`hidden_size` is missing, and `Decoder` has no default for it"),
    (changed(hidden_size="32"), '`hidden_size` is "32", expected an integer of at most 1,000,000,000'),
    (changed(hidden_size=10**12), "`hidden_size` is 1000000000000, expected an integer of at most 1,000,000,000"),
    (changed(hidden_size=-3), "`hidden_size` is -3, expected an integer of at least 1"),
    (changed(layers=[]), "`layers` is [], expected a list of layers"),
    (changed(layers=None), "`layers` is missing, expected a list of layers"),
    (changed(layers=[3]), "`layers[0]` is 3, expected an object"),
    (changed(layer={"repeat": 10**6}), "`layers[0].repeat` is 1,000,000, expected from 1 to 10,000 layers in all"),
    (changed(layer={"mixer": {"kind": "mega"}}), f'`layers[0].mixer.kind` is "mega"; known: {KINDS}'),
    (changed(layer={"mixer": {}}), f"`layers[0].mixer.kind` is missing; known: {KINDS}"),
    (changed(layer={"mixer": ATTENTION | {"heads": 3}}),
     "`layers[0].mixer.heads` is no field of `Attention`; known: `kind`, "),
    (changed(layer={"mixer": ATTENTION | {"gated": "no"}}), '`layers[0].mixer.gated` is "no", expected true or false'),
    (changed(layer={"mixer": ATTENTION | {"num_heads": 3}}),
     "`layers[0].mixer`: `num_heads` is 3 and `num_kv_heads` is 2, expected a whole number of query heads"),
    (changed(layer={"mlp": {"kind": "swiglu"}}), '`layers[0].mlp.kind` is "swiglu"; known: `mlp`, `experts`'),
    (changed(layer={"beside": ATTENTION}), "`layers[0].beside` is an object of 4 fields, expected a list"),
    (changed(layer={"mixer": {"kind": "recurrent", "matrices": [["q", 3, 4]]}}),
     '`layers[0].mixer.matrices[0][0]` is "q"; known: `q_proj`, '),
    (changed(layer={"mixer": {"kind": "recurrent", "matrices": [["q_proj", 3]]}}),
     "`layers[0].mixer.matrices[0]` has 2 items, expected 3"),
    (changed(layer={"mixer": ATTENTION, "reads": 0}), "`layers[0].reads` is 0, expected an earlier layer"),
]  # fmt: skip


@pytest.mark.parametrize(("described", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_what_is_not_known_is_refused_with_what_is(described: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_described(described, where="mine.json")
    assert str(caught.value).startswith(f"mine.json: {message}")


def test_the_catalogue_has_no_name_that_a_description_could_be_taken_for() -> None:
    assert all("kvtally" not in catalogue.entry(name)["config"] for name in catalogue.names())
