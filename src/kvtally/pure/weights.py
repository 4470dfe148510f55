"""How many bytes the weights of a model take: from the headers of its safetensors files, or from its GGUF file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from kvtally.core.errors import InputError, KvtallyError, UnreadableError
from kvtally.pure.gguf_file import read_header
from kvtally.pure.model import mode_of

LARGEST_HEADER = 100 * 10**6  # bytes; the format's own limit
ALIGNMENT = 32  # bytes; where a GGUF file does not say
INDEX = "model.safetensors.index.json"
HINT = "give --weights BYTES"


def weight_bytes(model: str) -> int:
    """Bytes that the tensors of `model` take: a `.gguf` file, a `.safetensors` file, or a folder of them.

    Only headers are read. A config.json stands for its folder. Tensors shared by two names are stored once, and
    count once. Not counted: what an engine converts, packs or duplicates when it loads them.

    >>> weight_bytes("absent.safetensors")
    Traceback (most recent call last):
        ...
    kvtally.core.errors.UnreadableError: absent.safetensors: no such file, expected weights
    <BLANKLINE>
    hint: give --weights BYTES
    """
    path = Path(model)
    if path.name == "config.json":
        path = path.parent
    try:
        if path.suffix == ".gguf":
            return _gguf(path)
        return sum(_safetensors(file) for file in _files(path))
    except KvtallyError as error:
        raise error.at(model) if not error.where else error from None


def _files(path: Path) -> list[Path]:
    """The safetensors files of a model: those its index names, or all there are."""
    mode = mode_of(path)
    if S_ISREG(mode) and path.suffix == ".safetensors":
        return [path]
    if not S_ISDIR(mode):
        raise UnreadableError("no such file, expected weights" if path.suffix else "has no weights here", hint=HINT)
    index = path / INDEX
    if S_ISREG(mode_of(index)):
        return [path / name for name in _named(index)]
    found = sorted(path.glob("*.safetensors"))
    if not found:
        raise UnreadableError("has no .safetensors file, expected the weights beside config.json", hint=HINT)
    return found


def _named(index: Path) -> list[str]:
    """The files that an index names, all of them in its own folder."""
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UnreadableError("is no index of safetensors files", where=str(index), hint=HINT) from None
    if any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise UnreadableError("names files outside its folder", where=str(index), hint=HINT)
    return names


def _safetensors(path: Path) -> int:
    """Bytes of all tensors of one file. Format: 8 bytes of length, that much JSON, then the tensors."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            (length,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
            if not 2 <= length <= min(LARGEST_HEADER, path.stat().st_size - 8):
                raise UnreadableError("is no whole safetensors file", where=str(path), hint=HINT)
            header = json.loads(file.read(length))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", where=str(path), hint=HINT) from None
    except (ValueError, RecursionError):
        raise UnreadableError("has a header that is no JSON", where=str(path), hint=HINT) from None
    if not isinstance(header, dict):
        raise UnreadableError("has a header that is no object", where=str(path), hint=HINT)
    return sum(_tensor(path, name, entry) for name, entry in header.items() if name != "__metadata__")


def _tensor(path: Path, name: str, entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if isinstance(offsets, list) and [type(n) for n in offsets] == [int, int] and 0 <= offsets[0] <= offsets[1]:
        return int(offsets[1] - offsets[0])
    raise UnreadableError(f"has no place for the tensor `{name:.60}`", where=str(path), hint=HINT)


def _gguf(path: Path) -> int:
    """Bytes from the first tensor of a GGUF file to its end, which is what llama.cpp maps; with their alignment."""
    header = read_header(path)
    alignment = header.values.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1:
        raise InputError(f"`general.alignment` is {alignment!r}, expected a number of bytes")
    return max(0, path.stat().st_size - -(-header.end // alignment) * alignment)
