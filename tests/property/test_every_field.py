"""No field is silently ignored: changing one changes the decoder, is refused, or is a noted fact. Every family.

What each change leads to is pinned as a digest of a family;
`PYTHONPATH=tests python tests/property/test_every_field.py` pins it anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.errors import InputError, KvtallyError
from kvtally.pure.config import FAMILIES, Fact, read_facts
from kvtally.pure.config_fields import BEARS, HARMLESS, config_class
from kvtally.pure.config_multimodal import DECODERS
from kvtally.pure.described import describe
from pinned import digest

PINNED = Path(__file__).parents[1] / "data" / "fields_pinned.json"
ODD = (-1, 0, True, None, "nonsense", [1, 2], {"nonsense": 1})
SIZES = {
    "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 70,
}  # fmt: skip
# What a family needs besides its class defaults: sizes a class leaves open, and that a decoder is meant.
NEEDS: dict[str, dict[str, Any]] = {
    "RefinedWeb": SIZES | {"num_key_value_heads": ..., "intermediate_size": ..., "num_kv_heads": 2},
    "RefinedWebModel": SIZES | {"num_key_value_heads": ..., "intermediate_size": ..., "multi_query": True},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2},
    **{name: {"head_dim": 128} for name in ("glm4_moe", "glm4v_moe_text", "qwen3_omni_moe_text")},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "hy_v4_vl_text": {"first_k_dense_replace": 1},
    "mimo": SIZES | {"num_key_value_heads": 6, "head_dim": 8},
    **{
        name: {"is_decoder": True}
        for name in (
            "bert", "camembert", "data2vec-text", "ernie", "megatron-bert", "roberta", "roberta-prelayernorm",
            "xlm-roberta", "xlm-roberta-xl", "bert-generation", "big_bird", "electra", "rembert", "roc_bert",
            "roformer", "xmod",
        )
    },
}  # fmt: skip
# Not read from class defaults alone: refused for a reason, nested, or known from JSON of their own only. Tests of
# their own modules change their fields.
ELSEWHERE = {
    "gemma4_assistant", "gemma4_unified_assistant", "blt", "prophetnet", "reformer", "xlm", "xlnet", "minimax_m3",
    "openelm", "nemotron-nas", "deci", "chatglm", "kimi_k2", "musicgen", "musicgen_melody", "minimax_text_01",
    "qwen4_exp", "qwen4_exp_text",
}  # fmt: skip

KINDS = (
    "full_attention", "sliding_attention", "chunked_attention", "linear_attention", "indexed_attention", "conv",
    "hybrid", "hybrid_sliding", "mamba", "attention", "recurrent", "moe", "mlp", "dense", "sparse",
)  # fmt: skip
SAME_KIND = {"mamba": "linear_attention", "attention": "full_attention"}  # old spellings
# Without it, `full_attention` is an old spelling of `indexed_attention`.
AS_LISTED = {family: {"per_layer_config": {}} for family in ("dots3_note", "dots3_note_text")}


class Asked(dict[str, Any]):
    """A config that remembers which fields it was asked for."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def left_out(fields: dict[str, Any], read: Callable[[Asked], object]) -> dict[str, None]:
    """Fields that a reader looks for and that are not there."""
    config = Asked(fields)
    with suppress(KvtallyError):
        read(config)
    return dict.fromkeys(sorted(config.names - fields.keys()))


def read(config: dict[str, Any]) -> tuple[Any, tuple[Fact, ...]]:
    """Decoder and facts, with a source of 17 tokens where the family asks for one."""
    try:
        return read_facts(config)
    except InputError as error:
        if "`source` is not given" not in str(error):
            raise
        return read_facts(config, source=17)


def base(family: str) -> dict[str, Any]:
    """The smallest config of a family that is read."""
    needed = {"model_type": family} | NEEDS.get(family, {})
    bare = {name: value for name, value in needed.items() if value is not ...}
    try:
        read(bare)
    except InputError as error:
        if "`text_config` is missing" not in str(error):
            raise
        return bare | {"text_config": NEEDS.get(DECODERS.get(family, ""), {})}
    return bare


def others(value: object) -> list[Any]:
    """Values unlike `value`, of its kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value + 2, 1]
    if isinstance(value, list):
        return [value[:-1], value[::-1], [*value[1:], "nonsense"], [value[-1]] * len(value)] if value else []
    return [3, 5] if value is None else ["nonsense"] if isinstance(value, str) else []


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ELSEWHERE])
def test_a_changed_field_changes_the_decoder_or_is_refused_or_noted(family: str) -> None:
    bare = base(family)
    before, _ = read(bare)
    ignored = []
    for name, value in config_class(family).defaults.items():
        tried = others(value) if BEARS.search(name) and not HARMLESS.fullmatch(name) else []
        if tried and all(_is_ignored(bare | {name: other}, name, before) for other in tried):
            ignored.append(name)
    assert not ignored, f"{family}: changing {ignored} changes nothing, and no fact says why"


def _is_ignored(config: dict[str, Any], name: str, before: object) -> bool:
    try:
        after, facts = read(config)
    except InputError:
        return False
    return after == before and not any(fact.note for fact in facts if name in (fact.name, fact.source.split(".")[-1]))


def contradicted(config: dict[str, Any]) -> list[str]:
    """Fields that a note sets aside and that change the decoder all the same. A null is a fact, not aside."""
    decoder, facts = read(config)
    noted = {fact.source: fact.note for fact in facts if fact.note and config.get(fact.source) is not None}
    return [f"{name}: {note}" for name, note in noted.items() if _changes(config, name, decoder)]


def _changes(config: dict[str, Any], name: str, before: object) -> bool:
    for other in others(config[name]):
        with suppress(InputError):
            if read(config | {name: other})[0] != before:
                return True
    return False


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ELSEWHERE])
def test_a_field_that_is_set_aside_changes_nothing(family: str) -> None:
    """Those of the class given as they are, all at once: a default that is not given is not a fact of the config."""
    config = base(family)
    for name, value in config_class(family).defaults.items():
        with suppress(InputError):
            read(config | {name: value})
            config |= {name: value}
    assert contradicted(config) == []


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ELSEWHERE])
@pytest.mark.parametrize("name", ["layer_types", "layers_block_type", "mlp_layer_types"])
def test_every_kind_of_layer_is_read_as_what_it_is_or_refused(family: str, name: str) -> None:
    """No kind that any family knows is a traceback in another, or counted as a kind that it is not."""
    bare = base(family)
    decoder, facts = read(bare)
    layers = {fact.name: fact.value for fact in facts}.get("num_hidden_layers", len(decoder.layers))
    seen: dict[str, str] = {}
    for kind in KINDS:
        said = {name: [kind] * layers, **AS_LISTED.get(family, {})}
        try:
            made, facts = read(bare | ({"text_config": said} if "text_config" in bare else said))
        except InputError:
            continue
        if not any(fact.note for fact in facts if fact.source.split(".")[-1] == name):
            same = seen.setdefault(repr(made), SAME_KIND.get(kind, kind))
            assert same == SAME_KIND.get(kind, kind), f"{family}: `{kind}` is read as `{same}`"


@pytest.mark.parametrize("family", sorted(ELSEWHERE))
def test_what_is_left_to_other_tests_is_not_read_from_defaults(family: str) -> None:
    with pytest.raises(InputError):
        read({"model_type": family})


def outcomes(bare: dict[str, Any], named: dict[str, Any]) -> Iterator[str]:
    """What changing each of the fields named, alone, to other values and to odd ones leads to."""
    for name, value in named.items():
        for other in (*others(value), *ODD):
            try:
                decoder, facts = read(bare | {name: other})
                outcome = repr((describe(decoder), facts))
            except InputError as error:
                outcome = str(error)
            yield f"{name} {other!r} {outcome}"


def fields(family: str) -> dict[str, Any]:
    """Every field that the class of a family knows, under each of its names, with its default, and all it asks for."""
    known = config_class(family)
    every = {**known.defaults, **{name: None for names in known.names.values() for name in names}}
    return every | {name: None for name in left_out(base(family), read) if name not in every}


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ELSEWHERE])
def test_a_changed_field_leads_to_what_it_did(family: str) -> None:
    found = digest(outcomes(base(family), fields(family)))
    assert found == json.loads(PINNED.read_text())[family], (
        "run: PYTHONPATH=tests python tests/property/test_every_field.py"
    )


if __name__ == "__main__":
    pins = {name: digest(outcomes(base(name), fields(name))) for name in FAMILIES if name not in ELSEWHERE}
    PINNED.write_text(json.dumps(pins, indent=0) + "\n")
