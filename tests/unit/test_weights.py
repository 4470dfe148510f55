"""Bytes of weights: names that no file can have, and indexes that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtally.core.errors import UnreadableError
from kvtally.pure.weights import HINT, INDEX, weight_bytes

LONG = "a" * 300  # longer than a file system takes


@pytest.mark.parametrize("name", [f"{LONG}.safetensors", f"{LONG}.gguf", LONG, "a\0b.safetensors"])
def test_a_name_that_no_file_can_have_leads_nowhere(name: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        weight_bytes(name)
    assert caught.value.where == name


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[]", b'{"weight_map": 3}', b"\xff"])
def test_an_index_that_names_no_files_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        weight_bytes(str(tmp_path))
    assert caught.value.where == str(tmp_path / INDEX)
    assert caught.value.problem == "is no index of safetensors files" and caught.value.hint == HINT


@pytest.mark.parametrize(
    "content", [b"", b"12345678", (9).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[]"]
)
def test_a_file_that_is_no_whole_safetensors_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        weight_bytes(str(file))
    assert (caught.value.where, caught.value.hint) == (str(file), HINT)
