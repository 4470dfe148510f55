"""Shrink the config of any architecture by one rule, over its class's own dictionary."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvtally.live.zoo_sizes import (
    ABSENT,
    COUNTS,
    EXCEPTIONS,
    INDEX_LISTS,
    LEADING,
    MISSING,
    ORDINARY,
    SIZES,
    TRAILING,
    VOCAB,
)

ENOUGH = 2  # layers kept of each kind
FEWEST = 4  # layers kept at least
PER_LAYER = "per_layer_config"
ROPE, SECTIONS = "rope_parameters", "mrope_section"


def shrunk(name: str) -> Any:
    """A tiny config object of the architecture `name`, every kind of its layers in it.

    Names decide sizes (`SIZES`); per-layer lists keep two layers of each kind and at least four;
    what the class derives for itself is left to it; special tokens stand at the top of the
    vocabulary. Nested configs shrink by the same rule. Raises whatever the config class raises.
    """
    from transformers import CONFIG_MAPPING

    return shrunk_config(CONFIG_MAPPING[name](**EXCEPTIONS.get(name, ORDINARY).full))


def shrunk_config(config: Any) -> Any:
    """A tiny config object of the same class as `config`, with every kind of its layers: `config` is left as it is."""
    exception = EXCEPTIONS.get(config.model_type, ORDINARY)
    return type(config)(**_merged(shrunk_fields(config), exception.small))


def _merged(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` with `changes` in place, nested objects merged field by field."""
    inner = {k: _merged(fields[k], v) for k, v in changes.items() if isinstance(v, Mapping) and k in fields}
    return {**fields, **changes, **inner}


def shrunk_fields(config: Any) -> dict[str, Any]:
    """The keyword arguments for a small config of the same class as `config`."""
    from transformers import PreTrainedConfig

    given = config.to_dict()
    declared = {f.name: f.default for f in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else {}
    spelled = type(config).attribute_map
    depth = given.get("num_hidden_layers", given.get(spelled.get("num_hidden_layers", ""), 0))
    kept = kept_layers(given, depth if isinstance(depth, int) else 0)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        inner = vars(config).get(name)
        if isinstance(inner, PreTrainedConfig):
            fields[name] = shrunk_fields(inner)
        elif kept and _per_layer(name, value, depth):
            fields[name] = _of_kept(name, value, kept)
        elif name in MISSING and declared.get(name, MISSING) is None:
            fields[name] = MISSING[name]
        elif name == ROPE and value != (short := _rope(value)):
            fields[name] = short
        elif not _derived(name, value, declared):
            fields[name] = _small(name, value, kept, depth)
    for name in ("num_hidden_layers", spelled.get("num_hidden_layers", "num_hidden_layers")):
        if kept and name in fields:
            fields[name] = len(kept)
    if "kv_lora_rank" in given:
        _one_kv_head_a_head(fields)
    _share_channels(fields, given.get(ROPE))
    return {**fields, **({"is_decoder": True} if "is_decoder" in declared else {})}


def _rope(value: Any) -> Any:
    """How positions turn, with a text's original length so small that a short one is longer; None of no mapping."""
    if not isinstance(value, Mapping):
        return None
    return {name: _rope(part) or _small(name, part, (), 0) for name, part in value.items()}


def _share_channels(fields: dict[str, Any], rope: Any) -> None:
    """Positions of several kinds (time, height, width) share the channels that turn: those of the small head."""
    given = rope.get(SECTIONS) if isinstance(rope, Mapping) else None
    if isinstance(given, list):
        width = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
        turning = int(width * rope.get("partial_rotary_factor", 1)) // 2
        small = [turning * n // sum(given) for n in given[1:]]
        fields[ROPE] = {**(_rope(rope) or {}), SECTIONS: [turning - sum(small), *small]}


def _one_kv_head_a_head(fields: dict[str, Any]) -> None:
    """Latent attention expands K and V for every head: the two numbers are one, in single layers as well."""
    for part in (fields, *fields.get(PER_LAYER, {}).values()):
        if {"num_attention_heads", "num_key_value_heads"} <= part.keys():
            part["num_key_value_heads"] = part["num_attention_heads"]


def kept_layers(given: Mapping[str, Any], depth: int) -> list[int]:
    """Indices of two layers of each kind, in order, and at least four: the kind is what every per-layer field says.

    >>> kept_layers({"layer_types": ["s", "s", "s", "f"] * 3}, 12)
    [0, 1, 3, 7]
    """
    seen: dict[str, int] = {}
    kept: set[int] = set()
    for index in range(depth):
        said = [_at(name, value, index) for name, value in sorted(given.items()) if _per_layer(name, value, depth)]
        said += [_within(name, given.get(name), index, depth) for name in (*LEADING, *TRAILING)]
        kind = repr(said)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= ENOUGH:
            kept.add(index)
    for index in range(depth):
        if len(kept) < min(FEWEST, depth):
            kept.add(index)
    return sorted(kept)


def _within(name: str, count: int | None, index: int, depth: int) -> bool:
    """Whether a layer is among the first or last `count` ones, whichever the field `name` counts."""
    return index < (count or 0) if name in LEADING else index >= depth - (count or 0)


def _per_layer(name: str, value: Any, depth: int) -> bool:
    if name == PER_LAYER or (INDEX_LISTS.fullmatch(name) and isinstance(value, list) and depth):
        return bool(value)
    return isinstance(value, list | tuple) and depth > 1 and len(value) == depth and not name.startswith("eos")


def _at(name: str, value: Any, index: int) -> Any:
    """What a per-layer field says of one layer: an item, an entry, or whether an index list has it."""
    if INDEX_LISTS.fullmatch(name):
        return index in value
    if isinstance(value, Mapping):
        return value.get(index, value.get(str(index), value.get(f"{index:02d}")))
    return value[index]


def _of_kept(name: str, value: Any, kept: Sequence[int]) -> Any:
    if name == PER_LAYER:
        return {new: _entry(_at(name, value, old)) for new, old in enumerate(kept) if _at(name, value, old) is not None}
    if INDEX_LISTS.fullmatch(name):
        return [new for new, old in enumerate(kept) if old in value]
    return [_small(name, value[old], kept, 0) for old in kept]


def _entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _small(name, value, (), 0) for name, value in fields.items()}


def _derived(name: str, value: Any, declared: Mapping[str, Any]) -> bool:
    """Whether the class makes this field of others: declared as None, or not declared, and yet there."""
    if name.startswith("_") or name in ABSENT:
        return True
    return value is not None and declared.get(name) is None


def _small(name: str, value: Any, kept: Sequence[int], depth: int) -> Any:
    """The small value of one field; what no rule names stays as it is."""
    if name in (*LEADING, *TRAILING) and kept:
        return value and sum(_within(name, value, index, depth) for index in kept)
    if isinstance(value, bool) or not isinstance(value, int | float | list):
        return value
    token = re.fullmatch(r"(\w+)_token_(?:ids?|index)", name)
    if token:
        return [VOCAB - 1 - k for k in range(len(value))] if isinstance(value, list) else _token(token[1])
    if isinstance(value, list):
        return value
    size = next((small for pattern, small in SIZES if pattern.fullmatch(name)), None)
    if size is None or isinstance(value, float):
        return value
    return min(value, size) if value <= COUNTS else size


TOKENS = ("pad", "eos", "bos", "decoder_start", "sep", "cls", "mask", "unk")


def _token(role: str) -> int:
    return VOCAB - 1 - (TOKENS.index(role) if role in TOKENS else len(TOKENS))
