"""The keys of a GGUF file, each taken with its type, its range and where it came from."""

from __future__ import annotations

import re
from typing import Any

from kvtally.core.errors import InputError
from kvtally.pure.config_fields import HINT, LARGEST, Fact, shown
from kvtally.pure.gguf_file import Header, Skipped

MOST_LAYERS = 1024  # llama.cpp itself stops at 512
LOADER_DEFAULT = "llama.cpp default"

# Keys that bear on what is cached or multiplied. One of such a name that no rule reads is refused.
BEARS = re.compile(
    r"block_count|.*_block_count|embedding_length.*|feed_forward_length|expert.*|interleave.*|full_attention_interval"
    r"|nextn.*|moe_.*|vocab_size|attention\.(head|key|value|kv|q_lora|sliding|shared|indexer|causal).*|altup.*"
    r"|.*lora_rank|ssm\..*|shortconv\..*|kda\..*|wkv\..*|token_shift.*|time_.*|.*chunk.*"
    r"|.*compress.*|.*latent.*|.*block_size"
)
# Those of them that change neither.
HARMLESS = re.compile(r"expert_(weights.*|gating_func|group.*)|attention\.(value_)?scale|ssm\.dt_b_c_rms")


class Keys:
    """The metadata of one architecture, taken by the part of the key after its name.

    What was taken, and from where, is in `facts`: the whole key, what llama.cpp takes where a file
    lacks it, or what it has built in for an architecture.

    >>> k = Keys(Header(values={"llama.block_count": 2}, tensors=frozenset()), "llama")
    >>> k.integer("block_count"), k.integer("expert_count", default=0)
    (2, 0)
    >>> print(*k.facts.values(), sep="; ")
    block_count = 2 (llama.block_count); expert_count = 0 (llama.cpp default)
    """

    __slots__ = ("_read", "_values", "arch", "facts", "tensors")

    def __init__(self, header: Header, arch: str) -> None:
        self.arch, self.tensors, self._values = arch, header.tensors, header.values
        self.facts: dict[str, Fact] = {}
        self._read: set[str] = set()

    @property
    def built_in(self) -> str:
        """The source of what is in llama.cpp's code and not in the file."""
        return f"hard-coded for arch {self.arch}"

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        return self._named(key) in self._values

    @property
    def parts(self) -> int:
        """How many files the model is cut into; each names its own tensors only."""
        count = self._values.get("split.count", 1)
        return count if isinstance(count, int) else 1

    def integer(self, key: str, *, least: int = 0, most: int = LARGEST, default: int | None = None) -> int:
        """An integer; `default` where the file lacks the key, an error where there is no default."""
        return self._whole(key, self._taken(key, default), least, most)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or False."""
        value = self._taken(key, default)
        if not isinstance(value, bool):
            raise InputError(f"`{self._named(key)}` is {_said(value)}, expected true or false")
        return value

    def by_layer(self, key: str, layers: int, *, least: int = 0) -> tuple[int, ...]:
        """An integer for each layer, from a number or a list of them."""
        value = self._taken(key)
        if not isinstance(value, tuple):
            return (self._whole(key, value, least, LARGEST),) * layers
        self._long_enough(key, value, layers)
        return tuple(self._whole(f"{key}[{i}]", value[i], least, LARGEST) for i in range(layers))

    def marks(self, key: str, layers: int) -> tuple[bool, ...] | int:
        """A boolean for each layer, or an integer."""
        value = self._taken(key)
        if not isinstance(value, tuple):
            return self._whole(key, value, 0, LARGEST)
        self._long_enough(key, value, layers)
        for index, mark in enumerate(value[:layers]):
            if mark not in (0, 1):
                raise InputError(f"`{self._named(key)}[{index}]` is {_said(mark)}, expected true or false")
        return tuple(bool(mark) for mark in value[:layers])

    def vocab_size(self) -> int:
        """How many tokens there are: said, or counted in the list of them."""
        tokens, name = "tokenizer.ggml.tokens", "vocab_size"
        if self.has(name) or not isinstance(found := self._values.get(tokens), Skipped):
            return self.integer(name, least=1)
        self.facts[name] = Fact(name=name, value=found.length, source=f"length of {tokens}")
        return self._whole(name, found.length, 1, LARGEST)

    def derive(self, name: str, value: Any, source: str) -> Any:
        """`value`, recorded as the fact `name` that follows from `source`."""
        self.facts[name] = Fact(name=name, value=value, source=source)
        return value

    def set_aside(self, *keys: str, note: str) -> None:
        """Keys that are known and do not enter the Decoder; the facts say why."""
        for key in keys:
            if self.has(key):
                self._taken(key)
                self.facts[key] = Fact(name=key, value=self.facts[key].value, source=self._named(key), note=note)

    def agrees(self, key: str, value: int, because: str) -> None:
        """Nothing where the file lacks the key or it says `value`; otherwise an InputError with `because`."""
        if self.has(key) and (found := self.integer(key)) != value:
            raise InputError(f"`{self._named(key)}` is {found:,}, expected {value:,}: {because}")

    def refuse_unread(self) -> None:
        """Nothing where every key that bears on cache or work was read; otherwise an InputError naming one."""
        prefix = f"{self.arch}."
        for name, value in self._values.items():
            key = name.removeprefix(prefix)
            if key == name or key in self._read or HARMLESS.fullmatch(key) or not BEARS.fullmatch(key):
                continue
            if not _says_nothing(value):
                raise InputError(
                    f"`{name}` is {_said(value)}, which bears on the cache or the work and is not read for "
                    f"`{self.arch}`",
                    hint=f"give the config.json of the model instead, or {HINT}",
                )

    def _named(self, key: str) -> str:
        return f"{self.arch}.{key}"

    def _taken(self, key: str, default: Any = None) -> Any:
        name = self._named(key)
        self._read.add(key)
        value, source = (self._values[name], name) if name in self._values else (default, LOADER_DEFAULT)
        if value is None:
            raise InputError(f"`{name}` is missing, expected an integer")
        seen = list(value) if isinstance(value, tuple) else value
        self.facts[key] = Fact(name=key, value=str(seen) if isinstance(seen, Skipped) else seen, source=source)
        return value

    def _long_enough(self, key: str, value: tuple[Any, ...], layers: int) -> None:
        if len(value) < layers:
            name = self._named(key)
            raise InputError(f"`{name}` has {len(value):,} values, expected one for each of {layers:,} layers")

    def _whole(self, key: str, value: Any, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            said = f"`{self._named(key)}` is {_said(value)}"
            raise InputError(f"{said}, expected an integer of at least {least:,} and at most {most:,}")
        return value


def _says_nothing(value: Any) -> bool:
    """Whether a value is zero, false, or a list of nothing else."""
    return not any(value) if isinstance(value, tuple) else isinstance(value, int) and not value


def _said(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Skipped):
        return repr(value)
    return shown(list(value) if isinstance(value, tuple) else value)
