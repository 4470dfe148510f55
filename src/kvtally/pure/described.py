"""A decoder described by hand (dict) <-> Decoder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from functools import cache
from itertools import groupby
from types import NoneType
from typing import Any, get_args, get_type_hints

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError, KvtallyError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.config_fields import LARGEST, MOST_LAYERS, shown

VERSION, MARK = 1, "kvtally"
KIND, REPEAT = "kind", "repeat"


def _kinds(*records: type) -> dict[str, type]:
    """Records by the name of their class, as JSON spells it: `LatentAttention` is `latent_attention`."""
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", record.__name__).lower(): record for record in records}


MIXERS = _kinds(Attention, LatentAttention, CompressedAttention, Recurrent, Indexer, CrossAttention)
MLPS = _kinds(Mlp, Experts)


def read_described(described: Mapping[str, object], *, where: str = "described") -> Decoder:
    """The Decoder that a dict describes in the words of the records `Decoder`, `Layer`, `Attention` and so on.

    `"kvtally": 1` marks it. A mixer or an MLP says its `kind`; a layer may say `repeat`; a field that
    is left out takes the default of its record. Unknown fields and kinds are an InputError that lists
    the known ones; `where` is put in front of every error.

    >>> one = {"mixer": {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}, "repeat": 3}
    >>> read_described({"kvtally": 1, "hidden_size": 32, "vocab_size": 0, "layers": [one]}).held(10)  # 3 * 10 * 32
    960
    """
    try:
        version = described.get(MARK)
        if version != VERSION or isinstance(version, bool):
            raise InputError(f"`{MARK}` is {shown(version)}, expected {VERSION}: how a decoder is described")
        layers = described.get("layers")
        rest = {key: value for key, value in described.items() if key not in (MARK, "layers")}
        return Decoder(layers=_layers(layers), **_arguments(Decoder, rest, "", skip=("layers",)))
    except KvtallyError as error:
        raise error.at(where) from None


def describe(decoder: Decoder) -> dict[str, Any]:
    """The dict that `read_described` reads as `decoder`: JSON types only, no field that has its default.

    >>> describe(Decoder(hidden_size=6, vocab_size=0, layers=(Layer(mlp=Mlp(width=9)),) * 4))["layers"]
    [{'repeat': 4, 'mlp': {'kind': 'mlp', 'width': 9}}]
    """
    runs = [(layer, len(list(same))) for layer, same in groupby(decoder.layers)]
    layers = [({REPEAT: many} if many > 1 else {}) | _described(layer) for layer, many in runs]
    return {MARK: VERSION, **_described(decoder), "layers": layers}


def _described(value: Any) -> Any:
    """JSON for a value of a record's field."""
    if isinstance(value, tuple):
        return [_described(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    kind = next((kind for kind, record in {**MIXERS, **MLPS}.items() if type(value) is record), None)
    if kind is None and not isinstance(value, Layer | Decoder):
        return value
    said = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "layers"}
    kept = {f.name: _described(said[f.name]) for f in fields(value) if f.name in said and said[f.name] != f.default}
    return ({KIND: kind} if kind else {}) | kept


# Reading


def _layers(value: object) -> tuple[Layer, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise InputError(f"`layers` is {_found(value)}, expected a list of layers")
    layers: list[Layer] = []
    for index, item in enumerate(value):
        place = f"layers[{index}]"
        said = dict(_object(item, place))
        repeat = _value(int, said.pop(REPEAT, 1), f"{place}.{REPEAT}")
        if not 1 <= repeat <= MOST_LAYERS - len(layers):
            raise InputError(f"`{place}.{REPEAT}` is {repeat:,}, expected from 1 to {MOST_LAYERS:,} layers in all")
        layers += [Layer(**_arguments(Layer, said, f"{place}.", also=(REPEAT,)))] * repeat
    return tuple(layers)


def _arguments(
    record: type, said: Mapping[str, object], place: str, *, skip: Sequence[str] = (), also: Sequence[str] = ()
) -> dict[str, Any]:
    """The arguments of a record, each of the type that its field has."""
    known = {f.name: f for f in fields(record) if f.name not in skip}
    for key in said:
        if key not in known:
            listed = ", ".join(f"`{name}`" for name in (*also, *known))
            name = shown(key).strip('"')
            raise InputError(f"`{place}{name}` is no field of `{record.__name__}`; known: {listed}")
    for name, field in known.items():
        if name not in said and _required(field):
            raise InputError(f"`{place}{name}` is missing, and `{record.__name__}` has no default for it")
    types = _types(record)
    return {name: _value(types[name], value, f"{place}{name}") for name, value in said.items()}


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _types(record: type) -> dict[str, Any]:
    return get_type_hints(record)


def _value(hint: Any, value: object, place: str) -> Any:
    """`value` as the type `hint` of a field: a record, a tuple, an enum, a number, a word, None."""
    options = get_args(hint)
    if hint in (int, bool, str):
        return _scalar(hint, value, place)
    if hint is Mixer:
        return _record(MIXERS, value, place)
    if hint in MLPS.values():
        return _record(MLPS, value, place)
    if isinstance(hint, type) and issubclass(hint, Enum):
        known = [member.value for member in hint]
        if value not in known:
            raise InputError(f"`{place}` is {_found(value)}; known: " + ", ".join(f"`{k}`" for k in known))
        return hint(value)
    if NoneType in options or Mlp in options:  # a union: None, or one type (of MLPs, as many as there are)
        return None if value is None and NoneType in options else _value(options[0], value, place)
    return _sequence(options, value, place)


def _sequence(options: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    """A tuple from a list: any number of one type, or one item of each type."""
    if not isinstance(value, list | tuple):
        raise InputError(f"`{place}` is {_found(value)}, expected a list")
    types = (options[0],) * len(value) if options[1:] == (Ellipsis,) else options
    if len(types) != len(value):
        raise InputError(f"`{place}` has {len(value):,} items, expected {len(types)}")
    return tuple(_value(t, item, f"{place}[{i}]") for i, (t, item) in enumerate(zip(types, value, strict=True)))


def _scalar(hint: type, value: object, place: str) -> Any:
    if type(value) is hint and not (isinstance(value, int) and abs(value) > LARGEST):
        return value
    words = {int: f"an integer of at most {LARGEST:,}", bool: "true or false", str: "a word"}
    raise InputError(f"`{place}` is {_found(value)}, expected {words[hint]}")


def _record(kinds: Mapping[str, type], value: object, place: str) -> Any:
    said = dict(_object(value, place))
    kind, listed = said.pop(KIND, None), ", ".join(f"`{name}`" for name in kinds)
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"`{place}.{KIND}` is {_found(kind)}; known: {listed}")
    arguments = _arguments(kinds[kind], said, f"{place}.", also=(KIND,))
    try:
        return kinds[kind](**arguments)
    except KvtallyError as error:
        raise error.at(f"`{place}`") from None


def _object(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InputError(f"`{place}` is {_found(value)}, expected an object")
    return value


def _found(value: object) -> str:
    return "missing" if value is None else shown(value)
