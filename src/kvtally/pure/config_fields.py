"""The fields of a config, each taken with its type, its range and where it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from kvtally.core.errors import InputError, require_int

CLASS_DEFAULT = "class default"
HINT = "describe the layers yourself with kvtally.Layer(...)"
DRAFT, LIMITS = "draft layers, not counted", "limits which experts are chosen, not how many"  # notes of many families
Value = TypeVar("Value", int, str)
LARGEST = 10**9  # of any size; a config that claims more is a mistake
MOST_LAYERS = 10_000

# Names that bear on what is cached or multiplied. A field of such a name that no family reads is refused.
BEARS = re.compile(
    "window|kv|head|layer_type|layers|n_layer|per_layer|block|pattern|interval|period|hybrid|lora_rank|latent|shar"
    "|chunk|state|conv|ssm|mamba|recurr|linear_|index|compress|sparse|cross|multi_query|group|expert|moe|mtp"
    "|intermediate|dense|expansion|ffn|hidden_size|n_embd|n_inner|d_model|d_ff|d_kv|attn_type|attention_type|^skip$"
)
# Those of them that change neither, in any family.
HARMLESS = re.compile(
    "_.*|.*_bias|.*_token_(id|ids|index)|chunk_size_feed_forward|output_hidden_states|tie_last_hidden_states|pruned_heads"
    "|num_beam_groups|ignore_index"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that was read of a config: its name, its value, and where the value came from.

    `source` is the field as the config spells it, `class default` where the config leaves it out and
    the transformers class fills it in, or what it was derived from. `note` says why a field that was
    seen does not enter the Decoder.

    >>> print(Fact(name="hidden_size", value=768, source="n_embd"))
    hidden_size = 768 (n_embd)
    """

    name: str
    value: object
    source: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name} = {shown(self.value)} ({self.source})" + (f": {self.note}" if self.note else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigClass:
    """What a transformers config class adds to a file: other spellings of a field, and defaults."""

    names: Mapping[str, Sequence[str]]
    defaults: Mapping[str, object]


class Fields:
    """The fields of one config, taken by name; what was taken, and from where, is in `facts`.

    A field is found under its common name or another spelling of its class; one that is absent takes
    the default of its transformers class, or is refused where there is none. Two spellings that
    disagree are refused.

    >>> f = Fields({"n_layer": 4}, "gpt2")
    >>> f.integer("num_hidden_layers"), f.integer("hidden_size")
    (4, 768)
    >>> print(*f.facts.values(), sep="; ")
    num_hidden_layers = 4 (n_layer); hidden_size = 768 (class default)
    """

    __slots__ = ("_class", "_config", "_inner", "_prefix", "_read", "facts", "model_type", "source")

    def __init__(self, config: Mapping[str, object], model_type: str, *, source: int | None = None) -> None:
        self.model_type = model_type
        self.source = source
        self.facts: dict[str, Fact] = {}
        self._config = config
        self._class = config_class(model_type)
        self._prefix = ""
        self._read = {"model_type"}
        self._inner: list[Fields] = []

    def integer(self, name: str, *, least: int = 1, most: int = LARGEST, default: int | None = None) -> int:
        """An integer; null is refused. `default` is that of a class which is not in transformers."""
        return self._whole(name, self._take(name, default), least, most)

    def optional(self, name: str, *, least: int = 1) -> int | None:
        """An integer, or None where the config says null or the class default is None."""
        value = self._take(name)
        return None if value is None else self._whole(name, value, least, LARGEST)

    def integer_or(self, word: str, name: str) -> int | None:
        """An integer, or None where the config says null or `word`, by which the class works it out itself."""
        value = self._take(name)
        return None if value is None or value == word else self._whole(name, value, 1, LARGEST)

    def number(self, name: str) -> float:
        """A number above 0, whole or not."""
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
            raise InputError(f"{self.said(name)}, expected a number above 0")
        return value

    def numbers(self, name: str) -> list[float]:
        """One number above 0 or a list of them, as a list."""
        value = self._take(name)
        found = value if isinstance(value, list | tuple) else [value]
        for item in found:
            if isinstance(item, bool) or not isinstance(item, int | float) or not 0 < item <= LARGEST:
                raise InputError(f"{self.said(name)}, expected numbers above 0")
        return list(found)

    def each(self, name: str, count: int, *, least: int = 1) -> tuple[int, ...]:
        """An integer for each of `count` layers: one for all of them, or a list of as many."""
        value = self._take(name)
        if not isinstance(value, list | tuple):
            return (self._whole(name, value, least, LARGEST),) * count
        if len(value) != count:
            said = f"`{self._spelled(name)}` has {len(value):,} entries"
            raise InputError(f"{said}, expected one for each of {count:,} layers")
        return tuple(_integer(f"{self._spelled(name)}[{i}]", item, least, LARGEST) for i, item in enumerate(value))

    def either(self, name: str, known: Sequence[str | bool | None]) -> str | bool | None:
        """The field's value, which must be one of `known`."""
        value = self._take(name)
        for one in known:
            if type(one) is type(value) and one == value:
                return one
        raise InputError(f"{self.said(name)}; known: " + ", ".join(shown(one) for one in known), hint=HINT)

    def flag(self, name: str) -> bool:
        """True or False."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise InputError(f"{self.said(name)}, expected true or false")
        return value

    def word(self, name: str) -> str:
        """A string."""
        value = self._take(name)
        if not isinstance(value, str):
            raise InputError(f"{self.said(name)}, expected a word")
        return value

    def words(self, name: str, known: Iterable[str]) -> tuple[str, ...] | None:
        """A list of words that are all among `known`, or None where the config has none or null."""
        items = self.items(name)
        for index, item in enumerate(items or ()):
            if item not in (known := tuple(known)):
                one = f"`{item:.60}`" if isinstance(item, str) else shown(item)
                listed = ", ".join(f"`{k}`" for k in known)
                raise InputError(f"`{self._spelled(name)}[{index}]` is {one}; known: {listed}", hint=HINT)
        return None if items is None else tuple(str(item) for item in items)

    def pattern(self, name: str, letters: Mapping[str, str]) -> tuple[str, ...] | None:
        """One word for each letter of a string, or the words of a list, or None where the config has neither."""
        value = self._take(name) if self.has(name) else None
        if not isinstance(value, str):
            return self.words(name, letters.values())
        for index, letter in enumerate(value):
            if letter not in letters:
                known = ", ".join(f"`{k}` ({word})" for k, word in letters.items())
                raise InputError(f"`{self._spelled(name)}[{index}]` is `{letter}`; known: {known}", hint=HINT)
        return tuple(letters[letter] for letter in value)

    def integers(self, name: str, *, least: int, most: int) -> tuple[int, ...] | None:
        """A list of integers from `least` to `most`, or None where the config has none or null."""
        items = self.items(name)
        if items is None:
            return None
        return tuple(_integer(f"{self._spelled(name)}[{i}]", item, least, most) for i, item in enumerate(items))

    def derive(self, name: str, value: Value, source: str) -> Value:
        """`value`, recorded as the fact `name` that follows from `source`."""
        self.facts[name] = Fact(name=name, value=value, source=source)
        return value

    def agrees(self, name: str, value: object, because: str) -> None:
        """Nothing where the field is absent, null, or says `value`; otherwise an InputError with `because`."""
        if not self.has(name):
            return
        found = self._take(name)
        if found is None or (type(found) is type(value) and found == value):
            return
        said = self.said(name)
        if isinstance(value, list) and isinstance(found, list) and len(found) == len(value):
            where = next(i for i, (one, other) in enumerate(zip(found, value, strict=True)) if one != other)
            said, value = f"`{self._spelled(name)}[{where}]` is {shown(found[where])}", value[where]
        raise InputError(f"{said}, expected {shown(value)}: {because}")

    def set_aside(self, *names: str, note: str) -> None:
        """Fields that are known and do not enter the Decoder; the facts say why. Not one taken by another name."""
        for name in names:
            spelled = self._spelled(name)
            same = [fact for fact in self.facts.values() if fact.source == spelled]
            used = any(f.name != name and not f.note and spelled in self._spellings(f.name) for f in same)
            if self.has(name) and not used and all(fact.note != note for fact in same):
                value = self._take(name)
                self.facts[name] = Fact(name=name, value=value, source=self._spelled(name), note=note)

    def nested(self, name: str, model_type: str, *others: str) -> Fields:
        """The fields of the object `name`, which must be a config of `model_type`, or says one of the others."""
        value = self._config.get(name)
        self._read.add(name)
        if not isinstance(value, Mapping):
            found = "missing" if name not in self._config else shown(value)
            raise InputError(f"`{name}` is {found}, expected the config of the `{model_type}` decoder")
        known = (model_type, *others)
        if (inner := value.get("model_type", model_type)) not in known:
            listed = ", ".join(f"`{k}`" for k in known)
            raise InputError(f"`{name}.model_type` is {shown(inner)}; known: {listed}", hint=HINT)
        fields = Fields(value, str(inner), source=self.source)
        fields._prefix, fields.facts = f"{self._prefix}{name}.", self.facts
        self._inner.append(fields)
        return fields

    def seen_as(self, model_type: str) -> Fields:
        """The same fields as those of a config of another class."""
        fields = Fields(self._config, model_type, source=self.source)
        fields._prefix, fields.facts, fields._read = self._prefix, self.facts, self._read
        return fields

    def part(self, name: str) -> Fields:
        """The fields of the object `name`, which has no class of its own: none of them where it is absent or null."""
        value = self._take(name) if self.has(name) else None
        if not isinstance(value, Mapping | None):
            raise InputError(f"{self.said(name)}, expected an object")
        return self._part(name, value or {})

    def parts(self, name: str) -> tuple[Fields, ...]:
        """The fields of each object in the list `name`."""
        items = self.items(name) or ()
        for index, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise InputError(f"`{self._spelled(name)}[{index}]` is {shown(item)}, expected an object")
        return tuple(self._part(f"{name}[{i}]", item) for i, item in enumerate(items) if isinstance(item, Mapping))

    def by_layer(self, name: str, layers: int) -> tuple[Fields, ...]:
        """What the object `name` says of each of `layers` layers alone, by index: no fields where it says nothing."""
        own = self.part(name)
        found = dict.fromkeys(range(layers), own._part("", {}))
        for key, value in own._config.items():
            index = shown(key).strip('"')
            if not index.isdecimal() or int(index) >= layers:
                raise InputError(f"`{own._prefix}{index}` names no layer, expected an index from 0 to {layers - 1:,}")
            if not isinstance(value, Mapping):
                raise InputError(f"`{own._prefix}{index}` is {shown(value)}, expected an object")
            found[int(index)] = own._part(index, value)
        return tuple(found.values())

    def _part(self, name: str, value: Mapping[str, object]) -> Fields:
        fields = Fields(value, f"{self.model_type} {name}", source=self.source)
        fields._prefix = f"{self._prefix}{name}."
        self._inner.append(fields)
        return fields

    def knows(self, name: str) -> bool:
        """Whether the config gives the field, or its class has a default for it."""
        return self.has(name) or any(s in self._class.defaults for s in self._spellings(name))

    def lists(self, name: str) -> bool:
        """Whether the config gives the field as a list."""
        return isinstance(self._config.get(name), list | tuple)

    def has(self, name: str) -> bool:
        """Whether the config itself gives the field, null included."""
        return any(spelling in self._config for spelling in self._spellings(name))

    def said(self, name: str) -> str:
        """What a field that was taken says, for a message: its spelling and its value."""
        fact = self.facts[name]
        default = " by class default" if fact.source == CLASS_DEFAULT else ""
        return f"`{self._spelled(name)}` is {shown(fact.value)}{default}"

    def refuse_unread(self) -> None:
        """Nothing where every field that bears on cache or work was read; otherwise an InputError naming one."""
        for key, value in self._config.items():
            if key in self._read or value in (None, False, [], {}):
                continue
            if BEARS.search(str(key)) and not HARMLESS.fullmatch(str(key)):
                raise InputError(
                    f"`{self._prefix}{key}` is {shown(value)}, which bears on the cache or the work and is not read "
                    f"for `{self.model_type}`",
                    hint=f"remove the field if it has no effect, or {HINT}",
                )
        for fields in self._inner:
            fields.refuse_unread()

    def _spellings(self, name: str) -> tuple[str, ...]:
        return (name, *self._class.names.get(name, ()))

    def _spelled(self, name: str) -> str:
        """The field's path as the config spells it; its common name where the config leaves it out."""
        return self._prefix + next((s for s in self._spellings(name) if s in self._config), name)

    def _take(self, name: str, default: int | None = None) -> Any:
        """The value of a field or of its class default, recorded as a fact."""
        spellings = self._spellings(name)
        given = [s for s in spellings if s in self._config]
        self._read.update(given)
        if given:
            value, source = self._config[given[0]], self._prefix + given[0]
            for other in given[1:]:
                if self._config[other] != value:
                    said = f"`{source}` is {shown(value)} and `{self._prefix}{other}` is {shown(self._config[other])}"
                    raise InputError(f"{said}, expected the same: both name one field")
        elif (own := next((s for s in spellings if s in self._class.defaults), None)) is not None:
            value, source = self._class.defaults[own], CLASS_DEFAULT
        elif default is not None:
            value, source = default, CLASS_DEFAULT
        else:
            others = "".join(f" or `{s}`" for s in spellings[1:])
            raise InputError(
                f"`{self._prefix}{name}`{others} is missing, and `{self.model_type}` has no default for it"
            )
        self.facts[name] = Fact(name=name, value=value, source=source)
        return value

    def _whole(self, name: str, value: object, least: int, most: int) -> int:
        return _integer(self._spelled(name), value, least, most)

    def items(self, name: str) -> Sequence[object] | None:
        """A list of whatever it holds, or None where the config has none or null."""
        value = self._take(name) if self.has(name) else None
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"{self.said(name)}, expected a list")
        return value


@cache
def config_class(model_type: str) -> ConfigClass:
    """The spellings and defaults of the transformers class for `model_type`; none where there is no class."""
    known = _classes().get(model_type, {})
    return ConfigClass(names=known.get("names", {}), defaults=known.get("defaults", {}))


def shown(value: object) -> str:
    """A value as JSON spells it, at most 60 characters long, for a message.

    >>> shown(None), shown(True), shown("a" * 99)[:9], shown(10**99)
    ('null', 'true', '"aaaaaaaa', 'an integer of 329 bits')
    """
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return f"an object of {len(value)} fields"
    if isinstance(value, list | tuple) and len(value) > 8:
        return f"a list of {len(value)}"
    text = json.dumps(value[:99] if isinstance(value, str) else value, default=repr, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def _integer(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value.bit_length() > 128:
        raise InputError(f"`{name}` is {shown(value)}, expected an integer of at least {least:,} and at most {most:,}")
    return require_int(name, value, least=least, most=most)


@cache
def _classes() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("config_classes.json").read_text(encoding="utf-8")
    classes: dict[str, dict[str, Any]] = json.loads(text)["classes"]
    return classes
