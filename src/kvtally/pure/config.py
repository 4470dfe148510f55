"""Hugging Face config (dict, file, folder) -> Decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, KvtallyError, require_int
from kvtally.pure import config_dense as dense
from kvtally.pure import config_encoder_decoder as encoder_decoder
from kvtally.pure import config_experts as experts
from kvtally.pure.config_fields import HINT, LARGEST, Fact, Fields, shown

# How each model_type is read: every module lists its own. Class defaults are in config_classes.json.
FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dense.FAMILIES,
    **experts.FAMILIES,
    **encoder_decoder.FAMILIES,
}
WITH_ENCODER = ("whisper", "t5")


def read_config(config: Mapping[str, object], *, where: str = "config", source: int | None = None) -> Decoder:
    """The Decoder that a Hugging Face config describes.

    `where` is put in front of every error. `source` is how many tokens the encoder reads, for
    encoder-decoder models. A field that the config leaves out takes the default of its transformers
    class; whatever is contradictory, or bears on the cache and is not understood, is an InputError.
    Not read: dtypes, vision and audio towers, encoders, draft (multi-token prediction) layers.

    >>> read_config({"model_type": "gpt2", "n_layer": 2, "n_embd": 48, "n_head": 4}).held(10)  # 2 * 10 * (48 + 48)
    1920
    """
    return read_facts(config, where=where, source=source)[0]


def read_facts(
    config: Mapping[str, object], *, where: str = "config", source: int | None = None
) -> tuple[Decoder, tuple[Fact, ...]]:
    """The Decoder that a config describes, and every fact it rests on with where that came from.

    >>> decoder, facts = read_facts({"model_type": "llama", "num_hidden_layers": 2})
    >>> print(facts[0], facts[2], sep="; ")
    num_hidden_layers = 2 (num_hidden_layers); num_attention_heads = 32 (class default)
    """
    try:
        fields = _fields(config, source)
        decoder = FAMILIES[fields.model_type](fields)
        fields.refuse_unread()
    except KvtallyError as error:
        raise error.at(where) from None
    return decoder, tuple(fields.facts.values())


def _fields(config: Mapping[str, object], source: int | None) -> Fields:
    if not isinstance(config, Mapping):
        raise InputError(f"the config is {shown(config)}, expected an object")
    known = ", ".join(f"`{name}`" for name in sorted(FAMILIES, key=str.lower))
    if "model_type" not in config:
        raise InputError(f"`model_type` is missing; known: {known}", hint=HINT)
    model_type = config["model_type"]
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        found = f"`{model_type:.60}`" if isinstance(model_type, str) else shown(model_type)
        raise InputError(f"`model_type` is {found}; known: {known}", hint=HINT)
    if source is not None:
        require_int("source", source, least=1, most=LARGEST)
        if model_type not in WITH_ENCODER:
            raise InputError(f"`source` is {source:,}, and `{model_type}` has no encoder", hint="leave it out")
    return Fields(config, model_type, source=source)
