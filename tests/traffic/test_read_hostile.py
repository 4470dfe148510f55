"""Any JSON in any place of a record, in every format: it reads or is refused, and no traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from kvtally.core.errors import KvtallyError
from kvtally.traffic.read import FORMATS, known_as, read
from kvtally.traffic.read_blocks import PIECES
from traffic.test_read_logs import FORMS, HI, SYSTEM, claude_line, one_request

Record = dict[str, Any]
BLOCKS: list[Record] = [
    {"timestamp": 0, "input_length": 32, "output_length": 3, "hash_ids": [0, 1], "block_size": 16, "session_id": "s"},
    {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.0, "input_length": 16, "type": "text", "hash_ids": [5]},
    {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": [
        {"t": 1.0, "in": 130, "out": 2, "hash_runs": [[1, 2]]},
        {"t": 2, "agent_id": "a", "requests": [{"t": 0, "in": 64, "hash_ids": [9]}]}]},
    {"timestamp": "1", "input_length": 5, "hash_ids": {group: [1] for group, _, _ in PIECES}, "session_id": "s"},
    {"timestamp": 1.0, "model_name": "m", "chunk_size": 256, "seq_len": 600, "chunk_hashes": ["ff", "0a"]},
    {"token_ids": [1, 2, 3], "timestamp": 1, "output_length": "3", "usage": {"completion_tokens": 5}},
    {"timestamp": 8, "event": "request.finished", "obj": {"input_ids": [1]}, "out": {"meta_info": {}}},
    claude_line("2", "1", "assistant", "good", requestId="a", isSidechain=True, agentId="x"),
]  # fmt: skip
TEXTS = [one_request(form, 1, SYSTEM, HI) for form in FORMS]
ODD = [
    2**62, 2**63, -(2**63), 2**64, 10**20, 10**400, 1e308, "9" * 5000, "1e999", "²", "\ud800", "\0", "[", '{"a": 1}',
    "2026-13-01", "0001-01-01", [[2**62, 2]], {"values": 5}, {"arrayValue": 5}, {"kvlistValue": {"values": [{}]}},
    r"Finish: x(text='\x')", "Finish: input_ids=[1], out={'completion_tokens': " + "9" * 5000,
]  # fmt: skip
DEEP: Any = []
for _ in range(600):
    DEEP = [DEEP]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, and the lengths of pieces."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tmp_path_factory.mktemp("hostile")
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?")).save(str(made / "tokenizer.json"))
    for _, file, key in PIECES:
        (made / file).write_text(json.dumps({key: 1, "token_length": 20}))
    return made


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([(record, path) for record in BLOCKS + TEXTS for path in places(record)]),
    ANY | st.just(DEEP),
    st.booleans(),
    st.booleans(),
)
def test_any_json_in_any_place(
    folder: Path, spot: tuple[Record, tuple[Any, ...]], value: Any, named: bool, skip_bad: bool
) -> None:
    record, (*path, last) = copy.deepcopy(spot[0]), spot[1]
    inner: Any = record
    for key in path:
        inner = inner[key]
    inner[last] = value
    file = folder / "t.jsonl"
    file.write_text(f"{json.dumps(record)}\n{json.dumps(spot[0])}\n")
    form = known_as(spot[0]) if named else None
    try:
        read([str(file)], form=form, tokenizer=str(folder / "tokenizer.json"), skip_bad=skip_bad)
    except KvtallyError as error:
        assert str(error)


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_record_in_every_format(folder: Path, form: str) -> None:
    (folder / "t.jsonl").write_text("{}\n")
    with pytest.raises(KvtallyError):
        read([str(folder / "t.jsonl")], form=form, tokenizer=str(folder / "tokenizer.json"))
