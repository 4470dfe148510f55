"""GGUF metadata -> Decoder."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError, KvtallyError, UnreadableError, require_int, require_one_of
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Experts, Mlp

GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}  # the pattern is in the loader, not in the file
PLAIN_MLP = {"gpt2", "gptneox", "falcon"}
KNOWN = {"llama", "qwen2", "qwen3", "qwen3moe", "deepseek2", *GLOBAL_EVERY, *PLAIN_MLP}

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
HEADER, SMALLEST_KEY, SMALLEST_TENSOR = 24, 13, 24  # bytes that each takes at least
MOST_KEYS, MOST_STRINGS, LONGEST_NAME, LONGEST_KEPT, MOST_LAYERS = 10**5, 10**7, 2**16, 2**12, 10**4


def read_gguf(path: str | Path) -> Decoder:
    """The decoder that the metadata of a GGUF file describes. No tensor is read, no package needed.

    Keys are `{arch}.block_count`, `{arch}.attention.head_count` and so on. Where a family slides in a
    pattern that the file does not hold, it is the one llama.cpp has built in. DeepSeek files come in
    two forms (`head_count_kv` 1 and one for each head); both describe the same latent attention.
    Raises UnreadableError for what is not a whole GGUF file, InputError for an architecture or a value
    that is not known. Time and memory are bounded by the metadata, not by what it claims.
    Not read: tensors, so a tied output head counts like any other.
    Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    place = Path(path)
    try:
        return _decoder(_metadata(place), place.stem)
    except KvtallyError as error:
        raise error.at(place.name) from None


@dataclass(slots=True)
class _Cursor:
    """A place in the file, and what can be taken from there."""

    data: mmap.mmap
    at: int = 0

    def take(self, form: str) -> tuple[Any, ...]:
        start = self.skip(struct.calcsize(f"<{form}"))
        return struct.unpack_from(f"<{form}", self.data, start)

    def skip(self, size: int) -> int:
        """Where the next `size` bytes start; the cursor is past them."""
        start = self.at
        if size > len(self.data) - start:
            raise UnreadableError(
                f"{size:,} bytes are announced at byte {start:,} of {len(self.data):,}, expected a whole GGUF file",
                hint="download the file again: it is cut off or damaged",
            )
        self.at += size
        return start

    def text(self, longest: int) -> str | None:
        """A string, or None where it is longer than `longest` bytes."""
        (size,) = self.take("Q")
        start = self.skip(size)
        return None if size > longest else self.data[start : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """A value of the GGUF type `kind`; a _Skipped where only its length is of use."""
        if kind == STRING:
            return self.text(LONGEST_KEPT)
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise UnreadableError(f"a value of type {kind} is at byte {self.at:,}, expected a type from 0 to 12")
        return self.take(SCALARS[kind])[0]

    def array(self) -> tuple[Any, ...] | _Skipped:
        kind, length = self.take("IQ")
        if kind in SCALARS:
            if length <= LONGEST_KEPT:
                return self.take(f"{length}{SCALARS[kind]}")
            self.skip(length * struct.calcsize(SCALARS[kind]))
            return _Skipped(length)
        if kind != STRING or length > MOST_STRINGS:
            raise UnreadableError(
                f"an array of {length:,} values of type {kind} is at byte {self.at:,}, "
                f"expected numbers or at most {MOST_STRINGS:,} strings"
            )
        for _ in range(length):
            self.skip(self.take("Q")[0])
        return _Skipped(length)


@dataclass(frozen=True, slots=True)
class _Skipped:
    """An array of which only the length is kept."""

    length: int


def _metadata(path: Path) -> dict[str, Any]:
    """Keys and values of the header."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _keys(_Cursor(data))
    except FileNotFoundError:
        raise UnreadableError("no such file, expected a GGUF file", hint="check the path") from None
    except (OSError, ValueError) as error:  # a folder, no permission, an empty file
        raise UnreadableError(f"cannot be read ({error}), expected a GGUF file") from None


def _keys(cursor: _Cursor) -> dict[str, Any]:
    size = len(cursor.data)
    found, hint = bytes(cursor.data[:4]), "is it a GGUF file, and a whole one?"
    if found != b"GGUF":
        raise UnreadableError(f"starts with {found!r}, expected b'GGUF'", hint=hint)
    if size < HEADER:
        raise UnreadableError(
            f"starts with b'GGUF' and has {size} bytes, expected b'GGUF' and at least {HEADER}", hint=hint
        )
    _, version, tensors, keys = cursor.take("4sIQQ")
    if version not in (2, 3):
        raise UnreadableError(f"GGUF version is {version:,}; known: 2, 3, in little-endian order")
    if tensors > size // SMALLEST_TENSOR or keys > min(size // SMALLEST_KEY, MOST_KEYS):
        raise UnreadableError(
            f"{keys:,} keys and {tensors:,} tensors are announced in {size:,} bytes, expected what fits in them",
            hint="download the file again: its header is damaged",
        )
    values: dict[str, Any] = {}
    for _ in range(keys):
        name = cursor.text(LONGEST_NAME)
        if name is None or name in values:
            raise UnreadableError(f"the key before byte {cursor.at:,} is {name or 'too long'!r}, expected a new name")
        values[name] = cursor.value(cursor.take("I")[0])
    return values


@dataclass(frozen=True, slots=True)
class _Facts:
    """Metadata of one architecture, asked by the part of the key after it."""

    arch: str
    values: dict[str, Any]

    def number(self, key: str, default: int | None = None) -> int:
        """An integer; `default` where the file lacks the key, an error where there is no default."""
        name = f"{self.arch}.{key}"
        value = self.values.get(name, default)
        if value is None:
            raise InputError(f"`{name}` is missing, expected an integer")
        return require_int(name, value, least=0, most=2**40)

    def by_layer(self, key: str, layers: int, default: int | None = None) -> tuple[int, ...]:
        """An integer for each layer, from a scalar or an array."""
        name = f"{self.arch}.{key}"
        value = self.values.get(name)
        if not isinstance(value, tuple):
            return (self.number(key, default),) * layers
        if len(value) < layers:
            raise InputError(f"`{name}` has {len(value):,} values, expected one for each of {layers:,} layers")
        return tuple(require_int(f"{name}[{i}]", value[i], least=0, most=2**40) for i in range(layers))

    @property
    def vocab_size(self) -> int:
        tokens = self.values.get("tokenizer.ggml.tokens")
        return self.number("vocab_size", tokens.length if isinstance(tokens, _Skipped) else None)


def _decoder(values: dict[str, Any], stem: str) -> Decoder:
    arch = values.get("general.architecture")
    require_one_of("general.architecture", arch, KNOWN)
    facts = _Facts(str(arch), values)
    layers = require_int(f"{arch}.block_count", facts.number("block_count"), least=1, most=MOST_LAYERS)
    if extra := facts.number("nextn_predict_layers", 0):
        raise InputError(f"`{arch}.nextn_predict_layers` is {extra}, expected 0: its layers are not known here")
    mixer = _latent(facts) if arch == "deepseek2" else _attention(facts, layers)
    mlp = _mlp(facts, layers)
    name = values.get("general.name")
    return Decoder(
        hidden_size=facts.number("embedding_length"),
        vocab_size=facts.vocab_size,
        layers=tuple(Layer(mixer=mixer(i), mlp=mlp(i)) for i in range(layers)),
        name=name if isinstance(name, str) and name else stem,
    )


def _attention(facts: _Facts, layers: int) -> Callable[[int], Attention]:
    hidden = facts.number("embedding_length")
    heads = facts.by_layer("attention.head_count", layers)
    kv_heads = facts.by_layer("attention.head_count_kv", layers, 0) if _has(facts, "attention.head_count_kv") else heads
    windows = _windows(facts, layers)
    width = 0 if _has(facts, "attention.key_length") else _split(hidden, heads[0])
    key = facts.number("attention.key_length", width)
    value = facts.number("attention.value_length", key)

    def layer(i: int) -> Attention:
        return Attention(
            num_heads=heads[i],
            num_kv_heads=kv_heads[i],
            head_dim=key,
            v_head_dim=None if value == key else value,
            window=windows[i],
        )

    return layer


def _has(facts: _Facts, key: str) -> bool:
    return f"{facts.arch}.{key}" in facts.values


def _split(hidden: int, heads: int) -> int:
    """Width of a head where the file does not give it."""
    if not heads or hidden % heads:
        raise InputError(
            f"`embedding_length` is {hidden:,} and `attention.head_count` is {heads:,}, "
            "expected a whole width for each head, or `attention.key_length`"
        )
    return hidden // heads


def _windows(facts: _Facts, layers: int) -> list[int | None]:
    """The window of each layer, None where it attends to everything."""
    window = facts.number("attention.sliding_window", None if facts.arch in GLOBAL_EVERY else 0)
    name = f"{facts.arch}.attention.sliding_window_pattern"
    pattern = facts.values.get(name)
    if isinstance(pattern, tuple):
        if len(pattern) < layers or not all(isinstance(slides, bool) for slides in pattern):
            raise InputError(f"`{name}` is {pattern!r}, expected a boolean for each of {layers:,} layers")
        return [window if slides else None for slides in pattern[:layers]]
    if facts.arch in GLOBAL_EVERY:
        every = facts.number("attention.sliding_window_pattern", GLOBAL_EVERY[facts.arch])
        require_int(name, every, least=1)
        return [None if i % every == every - 1 else window for i in range(layers)]
    if window and facts.arch != "llama":  # Mistral, under the name of llama, slides in every layer
        raise InputError(
            f"`{facts.arch}.attention.sliding_window` is {window:,} without a pattern, expected none: "
            "which layers slide is not in the file",
            hint="give the config.json of the model instead",
        )
    return [window or None] * layers


def _latent(facts: _Facts) -> Callable[[int], LatentAttention]:
    """Latent attention, from the form with one KV head (keys ending in _mla) or the one with all of them."""
    form = "_mla" if _has(facts, "attention.key_length_mla") else ""
    heads, rope = facts.number("attention.head_count"), facts.number("rope.dimension_count")
    key = facts.number(f"attention.key_length{form}")
    if key <= rope:
        raise InputError(f"`key_length{form}` is {key} and `rope.dimension_count` {rope}, expected a longer key")
    mixer = LatentAttention(
        num_heads=heads,
        kv_lora_rank=facts.number("attention.kv_lora_rank"),
        qk_rope_head_dim=rope,
        qk_nope_head_dim=key - rope,
        v_head_dim=facts.number(f"attention.value_length{form}"),
        q_lora_rank=facts.number("attention.q_lora_rank", 0) or None,
    )
    return lambda _: mixer


def _mlp(facts: _Facts, layers: int) -> Callable[[int], Mlp | Experts]:
    """The MLP of each layer: dense in the leading ones, experts behind, where the file has experts."""
    experts, gated = facts.number("expert_count", 0), facts.arch not in PLAIN_MLP
    dense_until = facts.number("leading_dense_block_count", 0) if experts else layers
    widths = facts.by_layer("feed_forward_length", layers, 0)

    def layer(i: int) -> Mlp | Experts:
        if i < dense_until:
            return Mlp(width=widths[i], gated=gated)
        width = facts.number("expert_feed_forward_length", widths[i])
        return Experts(
            num_experts=experts,
            per_token=facts.number("expert_used_count"),
            width=width,
            gated=gated,
            shared=facts.number("expert_shared_count", 0) * width,
        )

    return layer
