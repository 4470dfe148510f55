"""Hugging Face config (dict, file, folder) -> Decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Protocol, runtime_checkable

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, KvtallyError, require_int
from kvtally.pure import config_audio as audio
from kvtally.pure import config_bert as bert
from kvtally.pure import config_compressed as compressed
from kvtally.pure import config_dense as dense
from kvtally.pure import config_encoder_decoder as encoder_decoder
from kvtally.pure import config_experts as experts
from kvtally.pure import config_gated_state as gated_state
from kvtally.pure import config_gemma as gemma
from kvtally.pure import config_gpt as gpt
from kvtally.pure import config_latent as latent
from kvtally.pure import config_linear_attention as linear_attention
from kvtally.pure import config_looped as looped
from kvtally.pure import config_mamba as mamba
from kvtally.pure import config_multimodal as multimodal
from kvtally.pure import config_nested as nested
from kvtally.pure import config_remote as remote
from kvtally.pure import config_short_conv as short_conv
from kvtally.pure import config_uncached as uncached
from kvtally.pure import config_window as window
from kvtally.pure import config_window_experts as window_experts
from kvtally.pure.config_fields import HINT, LARGEST, Fact, Fields, shown
from kvtally.pure.described import MARK, read_described

# How each model_type is read: every module lists its own. Class defaults are in config_classes.json.
FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dense.FAMILIES,
    **gpt.FAMILIES,
    **window.FAMILIES,
    **window_experts.FAMILIES,
    **gemma.FAMILIES,
    **nested.FAMILIES,
    **remote.FAMILIES,
    **experts.FAMILIES,
    **latent.FAMILIES,
    **compressed.FAMILIES,
    **encoder_decoder.FAMILIES,
    **audio.FAMILIES,
    **bert.FAMILIES,
    **uncached.FAMILIES,
    **mamba.FAMILIES,
    **linear_attention.FAMILIES,
    **short_conv.FAMILIES,
    **gated_state.FAMILIES,
    **looped.FAMILIES,
    **multimodal.TEXT,
}
FAMILIES |= multimodal.families(FAMILIES.copy())
WITH_ENCODER = encoder_decoder.WITH_ENCODER


@runtime_checkable
class Dictable(Protocol):
    """An object that gives its fields as a dict, as every config object of transformers does."""

    def to_dict(self) -> dict[str, object]:
        """All fields, those of objects within as dicts."""


Config = Mapping[str, object] | Dictable | str | PathLike[str]


def read_config(config: Config, *, where: str = "config", source: int | None = None) -> Decoder:
    """The Decoder that a Hugging Face config describes.

    `config` is a dict; or an object with `to_dict()`, such as a transformers `PretrainedConfig`; or what
    `read_model` takes: a file, a folder, a name. A dict marked `"kvtally": 1` is read by `read_described`.
    `where` is put in front of every error. `source` is how many tokens the encoder reads, for
    encoder-decoder models. A field that the config leaves out takes the default of its transformers
    class; whatever is contradictory, or bears on the cache and is not understood, is an InputError.
    Not read: dtypes, vision and audio towers, encoders, draft (multi-token prediction) layers.

    >>> read_config({"model_type": "gpt2", "n_layer": 2, "n_embd": 48, "n_head": 4}).held(10)  # 2 * 10 * (48 + 48)
    1920
    """
    return read_facts(config, where=where, source=source)[0]


def read_facts(config: Config, *, where: str = "config", source: int | None = None) -> tuple[Decoder, tuple[Fact, ...]]:
    """The Decoder that a config describes, and every fact it rests on with where that came from.

    >>> decoder, facts = read_facts({"model_type": "llama", "num_hidden_layers": 2})
    >>> print(facts[0], facts[2], sep="; ")
    num_hidden_layers = 2 (num_hidden_layers); num_attention_heads = 32 (class default)
    """
    if isinstance(config, str | PathLike):
        from kvtally.pure.model import read_model_facts

        return read_model_facts(str(config), source=source)
    if isinstance(config, Dictable):
        config = config.to_dict()
    if isinstance(config, Mapping) and MARK in config:
        return _described(config, where, source)
    try:
        fields = _fields(config, source)
        decoder = FAMILIES[fields.model_type](fields)
        fields.refuse_unread()
        if source is not None and "source" not in fields.facts:
            problem = f"`source` is {source:,}, and `{fields.model_type}` has no encoder"
            raise InputError(problem, hint="leave it out")
    except KvtallyError as error:
        raise error.at(where) from None
    return decoder, tuple(fields.facts.values())


def _described(config: Mapping[str, object], where: str, source: int | None) -> tuple[Decoder, tuple[Fact, ...]]:
    """The Decoder that a description gives; its facts are the fields of the description."""
    if source is not None:
        problem = f"`source` is {source:,}, and a description says it in each layer's `cross`"
        raise InputError(problem, hint="leave it out", where=where)
    facts = (Fact(name=str(key), value=value, source="described by hand") for key, value in config.items())
    return read_described(config, where=where), tuple(fact for fact in facts if fact.name != MARK)


def _fields(config: Mapping[str, object], source: int | None) -> Fields:
    if not isinstance(config, Mapping):
        raise InputError(f"the config is {shown(config)}, expected an object")
    known = ", ".join(f"`{name}`" for name in sorted(FAMILIES, key=str.lower))
    if "model_type" not in config:
        raise InputError(f"`model_type` is missing; known: {known}", hint=HINT)
    model_type = config["model_type"]
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        found = f"`{model_type:.60}`" if isinstance(model_type, str) else shown(model_type)
        raise InputError(f"`model_type` is {found}; known: {known}", hint=_instead(config))
    if source is not None:
        require_int("source", source, least=1, most=LARGEST)
    return Fields(config, model_type, source=source)


def _instead(config: Mapping[str, object]) -> str:
    """What to do with a config of an unknown kind: its decoder may be known."""
    inner = config.get("text_config")
    name = inner.get("model_type") if isinstance(inner, Mapping) else None
    return f"its `text_config` is a `{name}`, which is read as a config of its own" if name in FAMILIES else HINT
