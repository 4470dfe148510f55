"""Where a MODEL argument leads: a file, a folder, a catalogue name, a Hugging Face id."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, KvtallyError, MissingExtraError, UnreadableError
from kvtally.pure import catalogue
from kvtally.pure.config import read_facts
from kvtally.pure.config_fields import Fact, shown

CONFIG = "config.json"
LARGEST_FILE = 16 * 2**20  # bytes; a config is a few thousand
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def read_model(name: str, *, source: int | None = None) -> Decoder:
    """The Decoder that `name` leads to, named so.

    `name` is a config.json or its folder, a `.gguf` file, a name of the catalogue, or a Hugging Face
    id `org/name`, looked for in that order. `source` is how many tokens the encoder reads, for
    encoder-decoder models. Nothing but a config or GGUF metadata is read, and no remote code is run.

    >>> read_model("gpt2").held(1)  # 12 layers * (768 + 768)
    18432
    """
    return read_model_facts(name, source=source)[0]


def read_model_facts(name: str, *, source: int | None = None) -> tuple[Decoder, tuple[Fact, ...]]:
    """The Decoder that `name` leads to, and every fact it rests on with where that came from.

    >>> print(read_model_facts("gpt2")[1][0])
    num_hidden_layers = 12 (n_layer)
    """
    if name.endswith(".gguf"):
        from kvtally.pure.gguf import read_gguf_facts

        if source is not None:
            raise InputError(f"`source` is {source:,}, and a GGUF file has no encoder", hint="leave it out", where=name)
        decoder, facts = read_gguf_facts(_file(Path(name)))
    else:
        config, where = find_config(name)
        decoder, facts = read_facts(config, where=where, source=source)
    return replace(decoder, name=name), facts


def find_config(name: str) -> tuple[dict[str, Any], str]:
    """The config that `name` leads to, and where it was found, to be put in front of errors.

    >>> find_config("gpt2")[1]
    'gpt2'
    """
    path = Path(name)
    mode = mode_of(path)
    if S_ISDIR(mode):
        return _read(_file(path / CONFIG)), str(path / CONFIG)
    if mode or name.endswith(".json") or name.startswith((".", "/", "~")):
        return _read(_file(path)), name
    if name not in catalogue.names() and HUB_ID.fullmatch(name):
        return _read(_from_hub(name)), f"{name}/{CONFIG}"
    return dict(catalogue.entry(name)["config"]), name


def mode_of(path: Path) -> int:
    """What lies at the path, as the bits that `stat` reads; 0 where nothing does, or no file can have that name."""
    try:
        return path.stat().st_mode
    except PermissionError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (OSError, ValueError):
        return 0


def _file(path: Path) -> Path:
    """The path of a regular file that is there."""
    mode = mode_of(path)
    if S_ISREG(mode):
        return path
    if mode:
        raise UnreadableError("is no regular file, expected a config.json or a .gguf file", where=str(path))
    hint = "name a config.json, its folder, a .gguf file, a Hugging Face id, or a name that `kvtally models` lists"
    raise UnreadableError("no such file", hint=hint, where=str(path))


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file of bounded size."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise InputError(f"is {size:,} bytes, expected a config of at most {LARGEST_FILE:,}")
        return _parsed(path.read_bytes())
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except KvtallyError as error:
        raise error.at(str(path)) from None


def _parsed(content: bytes) -> dict[str, Any]:
    hint = "give the config.json that lies beside the weights"
    try:
        value = json.loads(content, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at line {error.lineno:,}, column {error.colno:,}"
        raise InputError(problem, hint=hint) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not JSON: byte {error.start:,} is no UTF-8 text", hint=hint) from None
    except RecursionError:
        raise InputError("is JSON nested too deep, expected a config of a few levels", hint=hint) from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise InputError(f"is JSON that cannot be read: {str(error).partition(';')[0]}", hint=hint) from None
    if not isinstance(value, Mapping):
        raise InputError(f"is {shown(value)}, expected a JSON object", hint=hint)
    return dict(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = max(names, key=Counter(names).__getitem__)
        raise InputError(f"has `{twice:.60}` twice in one object, expected it once")
    return made


def _from_hub(name: str) -> Path:
    """The config.json of a Hugging Face id: from the local cache, else from the hub."""
    try:
        from huggingface_hub import constants, errors, hf_hub_download
    except ImportError:
        problem = f"`{name}` is taken for a Hugging Face id, and reading one needs huggingface_hub"
        raise MissingExtraError(problem, hint="pip install 'kvtally[hf]'") from None
    absent = f"not in the local cache ({constants.HF_HUB_CACHE})"
    try:
        return Path(hf_hub_download(name, CONFIG, local_files_only=True))
    except errors.HFValidationError:
        raise InputError(f"`{name}` is no file, no folder and no valid Hugging Face id") from None
    except errors.LocalEntryNotFoundError:
        if constants.HF_HUB_OFFLINE:
            problem = f"{absent}, and HF_HUB_OFFLINE is set"
            raise UnreadableError(problem, hint="unset it, or name a file", where=name) from None
    try:
        return Path(hf_hub_download(name, CONFIG))
    except errors.GatedRepoError:
        problem = "the hub gives this model to those who accepted its licence"
        hint = "accept the licence on the hub and log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        problem = "no such file or folder here, and the hub knows no such model"
        hint = f"check the spelling: https://huggingface.co/{name}"
    except errors.LocalEntryNotFoundError:
        problem, hint = f"{absent}, and the hub cannot be reached", "check the connection, or name a file"
    except errors.EntryNotFoundError:
        problem, hint = f"the model on the hub has no {CONFIG}", "name another model, or a file"
    except OSError as error:
        problem, hint = f"the hub did not answer: {str(error).partition(chr(10))[0]:.200}", "try again, or name a file"
    raise UnreadableError(problem, hint=hint, where=name)
