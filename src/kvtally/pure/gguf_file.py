"""A GGUF file's header: its keys and values, and the names of its tensors."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvtally.core.errors import UnreadableError

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
HEADER, SMALLEST_KEY, SMALLEST_TENSOR = 24, 13, 24  # bytes that each takes at least
MOST_KEYS, MOST_STRINGS, MOST_TENSORS = 10**4, 2 * 10**6, 10**5  # in one file
LONGEST_NAME, LONGEST_KEPT, MOST_DIMENSIONS = 2**10, 2**12, 8


@dataclass(frozen=True, slots=True)
class Skipped:
    """An array of which only the length is kept: strings, or more numbers than a model has layers."""

    length: int

    def __repr__(self) -> str:
        return f"a list of {self.length:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a GGUF file says before its tensors: `values` by key, the names of the tensors, and where it `end`s."""

    values: Mapping[str, Any]
    tensors: frozenset[str]
    end: int = 0


def read_header(path: Path) -> Header:
    """The header of the GGUF file at `path`; no tensor is read, and no package is needed.

    Time and memory are bounded by what the file has, not by what it claims. Raises UnreadableError
    for what is not a whole GGUF file. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Cursor(data))
    except FileNotFoundError:
        raise UnreadableError("no such file, expected a GGUF file", hint="check the path") from None
    except (OSError, ValueError) as error:  # a folder, no permission, an empty file
        raise UnreadableError(f"cannot be read ({error}), expected a GGUF file") from None


@dataclass(slots=True)
class _Cursor:
    """A place in the file, what can be taken from there, and how many more strings may come."""

    data: mmap.mmap
    at: int = 0
    strings: int = MOST_STRINGS

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
        """A value of the GGUF type `kind`; a Skipped where only its length is of use."""
        if kind == STRING:
            return self.text(LONGEST_KEPT)
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise UnreadableError(f"a value of type {kind} is at byte {self.at:,}, expected a type from 0 to 12")
        return self.take(SCALARS[kind])[0]

    def array(self) -> tuple[Any, ...] | Skipped:
        kind, length = self.take("IQ")
        if kind in SCALARS:
            if length <= LONGEST_KEPT:
                return self.take(f"{length}{SCALARS[kind]}")
            self.skip(length * struct.calcsize(SCALARS[kind]))
            return Skipped(length)
        if kind != STRING or length > self.strings:
            raise UnreadableError(
                f"an array of {length:,} values of type {kind} is at byte {self.at:,}, "
                f"expected numbers, or at most {MOST_STRINGS:,} strings in all"
            )
        self.strings -= length
        for _ in range(length):
            self.skip(self.take("Q")[0])
        return Skipped(length)


def _header(cursor: _Cursor) -> Header:
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
    if tensors > min(size // SMALLEST_TENSOR, MOST_TENSORS) or keys > min(size // SMALLEST_KEY, MOST_KEYS):
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
    names = frozenset(_tensor(cursor) for _ in range(tensors))
    return Header(values=values, tensors=names, end=cursor.at)


def _tensor(cursor: _Cursor) -> str:
    """The name of a tensor; its shape, type and place are passed over."""
    name, (dimensions,) = cursor.text(LONGEST_NAME), cursor.take("I")
    if name is None or dimensions > MOST_DIMENSIONS:
        raise UnreadableError(
            f"a tensor of {dimensions:,} dimensions is named before byte {cursor.at:,}, "
            f"expected at most {MOST_DIMENSIONS}, and a name of at most {LONGEST_NAME:,} bytes",
            hint="download the file again: it is cut off or damaged",
        )
    cursor.skip(8 * dimensions + 4 + 8)
    return name
