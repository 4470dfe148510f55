"""What each key of a GGUF file leads to, changed alone, pinned as a digest of an architecture.

`PYTHONPATH=tests python tests/unit/test_gguf_changed.py` pins it anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="the files of these tests are written with the gguf package")

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.pure.config_fields import Fact
from kvtally.pure.described import describe
from kvtally.pure.gguf import READERS
from kvtally.pure.gguf_file import Header
from kvtally.pure.gguf_keys import Keys
from pinned import digest
from property.test_every_field import left_out
from unit import test_gguf, test_gguf_families

PINNED = Path(__file__).parents[1] / "data" / "gguf_pinned.json"
LEFT_OUT = object()
ODD = (LEFT_OUT, 0, 1, 10**10, "nonsense", (1, 2), True)
EXPERTS = {"expert_count": 5, "expert_used_count": 2, "expert_shared_count": 1}
BY_TENSORS = {"gemma4", "mimo2"}  # files of theirs without tensors are refused


def others(value: Any) -> list[Any]:
    """Values unlike `value`, of its kind."""
    if isinstance(value, tuple):
        return [value[:-1], value[::-1], value[-1:] * len(value), (0,) * len(value)]
    return [value + 1, 2 * value + 2, (value,) * 8] if type(value) is int else []


def read(arch: str, keys: dict[str, Any]) -> str:
    """The decoder and its facts, or the refusal."""
    return read_values(arch, {f"{arch}.{key}": value for key, value in keys.items() if value is not LEFT_OUT})


def read_values(arch: str, values: dict[str, Any]) -> str:
    """The same of keys with their architecture."""
    try:
        decoder, facts = made(arch, values)
    except InputError as error:
        return str(error)
    return repr((describe(decoder), facts))


def made(arch: str, values: dict[str, Any]) -> tuple[Decoder, tuple[Fact, ...]]:
    """The decoder of a file with these keys and no tensors, and its facts."""
    keys = Keys(Header(values=values, tensors=frozenset()), arch)
    decoder = READERS[arch](keys)
    keys.refuse_unread()
    return decoder, tuple(keys.facts.values())


def completed(arch: str, **more: int) -> dict[str, Any]:
    """The smallest keys with which an architecture is read: what is missed is added, what is not read is taken out."""
    keys: dict[str, Any] = {**test_gguf_families.KEYS, "block_count": 4, **more}
    for _ in range(60):
        said = read(arch, keys)
        if missing := re.match(rf"`{arch}\.([\w.]+)` is missing", said):
            keys[missing[1]] = 4
        elif unread := re.match(rf"`{arch}\.([\w.]+)` is .*, which bears on", said):
            del keys[unread[1]]
        elif "expected 6: without key_length_mla" in said:
            keys["attention.head_count_kv"] = 6
        elif "expected keys wider than that" in said:
            keys["attention.key_length"] = 7
        else:
            break
    return keys


def frozen(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys as a file gives them: lists are tuples, and there is a vocabulary."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in ({"vocab_size": 31} | keys).items()
    }


FILES: dict[str, tuple[str, dict[str, Any]]] = {
    **{n: (arch, frozen(test_gguf_families.KEYS | k)) for n, (arch, k, _) in test_gguf_families.FAMILIES.items()},
    **{f"{n}, by hand": (arch, frozen(keys)) for n, (arch, keys, _) in test_gguf.FAMILIES.items()},
    **{f"{arch}, completed": (arch, completed(arch)) for arch in READERS},
    **{f"{arch}, experts": (arch, completed(arch, **EXPERTS)) for arch in READERS},
}


def outcomes(arch: str, keys: dict[str, Any]) -> Iterator[str]:
    """What changing each key leads to, and giving each that is looked for and left out."""
    absent = left_out({f"{arch}.{key}": value for key, value in keys.items()}, lambda own: read_values(arch, own))
    every = keys | {name.removeprefix(f"{arch}."): None for name in absent if name.startswith(arch)}
    for key, value in every.items():
        for other in (*others(value), *ODD):
            shown = "left out" if other is LEFT_OUT else repr(other)
            yield f"{key} {shown} {read(arch, keys | {key: other})}"


@pytest.mark.parametrize("arch", sorted(READERS.keys() - BY_TENSORS))
def test_an_architecture_is_read_once_nothing_is_missing(arch: str) -> None:
    assert read(arch, completed(arch)).startswith("({")


@pytest.mark.parametrize("name", FILES)
def test_a_key_that_is_set_aside_changes_nothing(name: str) -> None:
    arch, keys = FILES[name]
    values = {f"{arch}.{key}": value for key, value in keys.items()}
    with suppress(InputError):
        decoder, facts = made(arch, values)
        for fact in facts:
            for other in others(values.get(fact.source)) if fact.note else ():
                with suppress(InputError):
                    assert made(arch, values | {fact.source: other})[0] == decoder, f"{fact.source}: {fact.note}"


@pytest.mark.parametrize("name", FILES)
def test_a_changed_key_leads_to_what_it_did(name: str) -> None:
    pins = json.loads(PINNED.read_text())
    assert digest(outcomes(*FILES[name])) == pins[name], "run: PYTHONPATH=tests python tests/unit/test_gguf_changed.py"


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(outcomes(*file)) for name, file in FILES.items()}, indent=0) + "\n")
