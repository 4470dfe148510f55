"""Every format, read from files of ours and from the shared traces; the same requests whatever they are written in."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from kvtally.core.errors import InputError
from kvtally.traffic import read_lines
from kvtally.traffic.canonical import read_parquet, write_parquet
from kvtally.traffic.chain import PieceChain, TokenChain
from kvtally.traffic.coarsen import coarsened
from kvtally.traffic.read import read
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import runs

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "traces"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")


def written(folder: Path, *records: object, name: str = "trace.jsonl") -> str:
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(folder / name)


def paths(requests: Requests) -> list[list[int]]:
    return [requests.path(r).tolist() for r in range(len(requests))]


DEEP: list[object] = []  # json reads it, and a function that calls itself cannot
for _ in range(600 if sys.version_info < (3, 12) else 1200):
    DEEP = [DEEP]

MOONCAKE = [
    {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [0, 1, 2], "block_size": 16},
    {"timestamp": 1500, "input_length": 48, "output_length": 5, "hash_ids": [0, 1, 3], "block_size": 16},
]


def test_mooncake(tmp_path: Path) -> None:
    found = read([written(tmp_path, *MOONCAKE)])
    assert paths(found) == [[0, 1, 2], [0, 1, 3]]
    assert found.time.tolist() == [0.0, 1.5]
    assert found.input_tokens.tolist() == [40, 48]
    assert found.output_tokens.tolist() == [3, 5]
    assert (found.block_size, found.notes) == (16, ())


@pytest.mark.parametrize("kind", ["gz", "zst", "-"])
def test_the_same_compressed_and_from_stdin(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = written(tmp_path, *MOONCAKE)
    data = Path(plain).read_bytes()
    if kind == "-":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        name = "-"
    else:
        name = f"{plain}.{kind}"
        packed = gzip.compress(data) if kind == "gz" else pa.compress(data, codec="zstd", asbytes=True)
        Path(name).write_bytes(packed)
    assert paths(read([name])) == [[0, 1, 2], [0, 1, 3]]


def test_a_glob_and_a_folder_are_their_files(tmp_path: Path) -> None:
    written(tmp_path, MOONCAKE[0], name="a.jsonl")
    written(tmp_path, MOONCAKE[1], name="b.jsonl")
    assert paths(read([str(tmp_path / "*.jsonl")])) == paths(read([str(tmp_path)])) == [[0, 1, 2], [0, 1, 3]]


def test_bailian_sessions_are_chains_of_chats(tmp_path: Path) -> None:
    common = {"input_length": 16, "output_length": 1, "type": "text", "turn": 1}
    found = read([written(
        tmp_path,
        {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.0, "hash_ids": [5], **common},
        {"chat_id": 8, "parent_chat_id": 7, "timestamp": 2.0, "hash_ids": [5], **common},
        {"chat_id": 9, "parent_chat_id": 8, "timestamp": 3.0, "hash_ids": [5], **common},
    )])  # fmt: skip
    assert found.session.tolist() == [0, 0, 0]
    assert found.names["session"] == ("7",)
    assert found.block_size == 16


def test_weka_ids_are_local_and_nested_times_are_relative_or_absolute(tmp_path: Path) -> None:
    inner = {"t": 0.0, "in": 64, "out": 1, "hash_ids": [9]}
    agent = {"t": 10.0, "type": "subagent", "agent_id": "a", "requests": [inner, {**inner, "t": 2.0}]}
    later = {"t": 20.0, "agent_id": "b", "requests": [{**inner, "t": 25.0}]}
    outer = {"t": 1.0, "in": 130, "out": 2, "hash_runs": [[1, 2]]}
    one = {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": [outer, agent, later]}
    found = read([written(tmp_path, one, {**one, "id": "y"})])
    half = sorted(zip(found.time.tolist(), paths(found), strict=True))
    assert [t for t, _ in half] == [1, 1, 10, 10, 12, 12, 25, 25]
    blocks: dict[str, set[int]] = {"x": set(), "y": set()}
    for r, path in enumerate(paths(found)):
        blocks[found.names["session"][found.session[r]][0]].update(path)
    first, second = blocks.values()
    assert len(first) == len(second) == 3
    assert not first & second


def test_weka_as_one_json_document_on_many_lines(tmp_path: Path) -> None:
    one = {"id": "x", "block_size": 64, "requests": [{"t": 0, "in": 130, "hash_ids": [1, 2]}]}
    (tmp_path / "x.json").write_text(json.dumps(one, indent=1))
    assert read([str(tmp_path / "x.json")]).accesses == 2


def test_lmcache_hashes_are_numbered_by_model(tmp_path: Path) -> None:
    record = {"timestamp": 1.0, "model_name": "m", "chunk_size": 256, "seq_len": 600, "chunk_hashes": ["ff", "0a"]}
    found = read([written(tmp_path, record, record, {**record, "model_name": "n"})])
    assert paths(found) == [[0, 1], [0, 1], [2, 3]]
    assert found.names["model"] == ("m", "n")


def test_hashes_of_64_bits_are_numbered_anew(tmp_path: Path) -> None:
    top = 2**64 - 1
    found = read([written(tmp_path, *(
        {"timestamp": t, "input_length": 32, "hash_ids": ids, "block_size": 16}
        for t, ids in enumerate([[top, -5], [top, 2**61]])
    ))])  # fmt: skip
    one, two = paths(found)
    assert one[0] == two[0]
    assert len({*one, *two}) == found.blocks == 3


LOCAL = [  # the paths of records with ids of their own: the same in a record is the same block, and nothing else is
    ([[0]], [[2**63]]),
    ([[2**63]], [[2**63]]),
    ([[2**62 - 1]], [[2**62 - 1]], [[0], [0, 2**62 - 1]]),
    ([[2**62 - 1, 2**62]], [[2**62, 3, 0]], [[0], [0, 2]]),
    ([[5, -1]], [[-1], [-1, 5]]),
]


@pytest.mark.parametrize(
    ("form", "records"), [*(("hash_ids", one) for one in LOCAL), *(("hash_runs", one) for one in LOCAL[:-1])]
)
def test_ids_of_any_size_are_local_to_their_record(tmp_path: Path, form: str, records: list[list[list[int]]]) -> None:
    lines = [{"id": str(n), "block_size": 64, "requests": [
        {"t": 0, "in": 64 * len(path), form: path if form == "hash_ids" else [[i, 1] for i in path]} for path in each
    ]} for n, each in enumerate(records)]  # fmt: skip
    names: dict[tuple[int, int], int] = {}
    wanted = [(n, path) for n, each in enumerate(records) for path in each]
    for found, (n, path) in zip(paths(read([written(tmp_path, *lines)])), wanted, strict=True):
        assert found == [names.setdefault((n, i), one) for i, one in zip(path, found, strict=True)]
    assert len(set(names.values())) == len(names)


def test_a_run_that_reaches_large_ids_is_those_ids(tmp_path: Path) -> None:
    at = 2**62 - 2
    inner = [{"t": 0, "in": 192, "hash_runs": [[at, 3]]}, {"t": 1, "in": 192, "hash_ids": [at, at + 1, at + 2]}]
    one, two = paths(read([written(tmp_path, {"id": "x", "block_size": 64, "requests": inner})]))
    assert one == two and len(set(one)) == 3


def test_a_record_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    tokens = {"token_ids": [1, 2], "timestamp": 1}
    bad = [{**tokens, "output_length": 10**20}, {**tokens, "timestamp": 10**400}, {"messages": [{"content": DEEP}]}]
    found = read([written(tmp_path, *bad, {**tokens, "output_length": "7"})], block_size=2, skip_bad=True)
    assert (paths(found), found.output_tokens.tolist(), found.time.tolist()) == ([[0]], [7], [1.0])
    assert found.notes[0].startswith("3 bad records skipped, the first: ")


def test_token_ids_are_chained(tmp_path: Path) -> None:
    name = written(tmp_path, *({"token_ids": t, "timestamp": n} for n, t in enumerate([[1, 2, 3, 4, 5], [1, 2, 9, 4]])))
    found = read([name], block_size=2)
    assert paths(found) == [[0, 1], [0, 2]]
    assert found.input_tokens.tolist() == [5, 4]


def test_claude_code_by_usage_counts_and_said_so(tmp_path: Path) -> None:
    def line(request: str, fresh: int, cached: int) -> dict[str, object]:
        usage = {"input_tokens": fresh, "cache_read_input_tokens": cached, "output_tokens": 7}
        said = {"id": request, "model": "m", "usage": usage}
        return {"type": "assistant", "sessionId": "s", "uuid": request, "requestId": request,
                "timestamp": "2026-01-01T00:00:00Z", "message": said}  # fmt: skip

    user = {"type": "user", "sessionId": "s", "uuid": "u", "timestamp": "2026-01-01T00:00:00Z"}
    name = written(tmp_path, user, line("a", 130, 0), line("a", 130, 0), line("b", 70, 130), line("c", 1, 64))
    found = read([name])
    assert paths(found) == [[0, 1], [0, 1, 2], [0]]
    assert found.input_tokens.tolist() == [130, 200, 65]
    assert "token counts, not tokens" in found.notes[0]


def test_the_progress_of_all_files_is_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_lines, "EVERY", 1)
    sizes = [Path(written(tmp_path, record, record, name=f"{n}.jsonl")).stat().st_size
             for n, record in enumerate(MOONCAKE)]  # fmt: skip
    told: list[tuple[str, int, int]] = []
    read([str(tmp_path)], progress=lambda file, done, whole: told.append((Path(file).name, done, whole)))
    assert [(name, whole) for name, _, whole in told] == [(f"{n}.jsonl", sum(sizes)) for n in (0, 0, 1, 1)]
    done = [done for _, done, _ in told]
    assert done == sorted(done)
    assert done[-1] == sum(sizes)


def test_timestamps_out_of_order_are_sorted_and_said(tmp_path: Path) -> None:
    found = read([written(tmp_path, *MOONCAKE[::-1])])
    assert found.time.tolist() == [0.0, 1.5]
    assert found.notes == ("timestamps out of order at 1 place: sorted",)


def test_bad_records_are_counted(tmp_path: Path) -> None:
    found = read([written(tmp_path, MOONCAKE[0], {"nothing": 1}, MOONCAKE[1], {"hash_ids": "x"})], skip_bad=True)
    assert len(found) == 2
    assert found.notes[0].startswith("2 bad records skipped, the first: ")
    assert "trace.jsonl:2" in found.notes[0]


def test_a_line_too_long_is_bad_and_its_rest_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_lines, "LONGEST", 200)
    name = written(tmp_path, MOONCAKE[0], {"hash_ids": list(range(300))}, MOONCAKE[1])
    found = read([name], skip_bad=True)
    assert paths(found) == [[0, 1, 2], [0, 1, 3]]
    assert "trace.jsonl:2" in found.notes[0]


def test_a_document_too_long_is_read_as_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .json file of two records, one a line: it is no JSON text, and too long for one."""
    name = written(tmp_path, *MOONCAKE, name="t.json")
    assert paths(read([name])) == [[0, 1, 2], [0, 1, 3]]
    monkeypatch.setattr(read_lines, "LONGEST", 120)
    assert paths(read([name])) == [[0, 1, 2], [0, 1, 3]]
    long = json.dumps([*MOONCAKE, *MOONCAKE])
    (tmp_path / "t.json").write_text(long)
    with pytest.raises(InputError, match=r"t.json:1: a line of more than 0 MiB, expected a request"):
        read([name])


def test_bad_records_of_a_document_are_counted_too(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps([MOONCAKE[0], 3, MOONCAKE[1]]))
    found = read([str(tmp_path / "t.json")], skip_bad=True)
    assert paths(found) == [[0, 1, 2], [0, 1, 3]]
    assert found.notes[0].startswith("1 bad record skipped, the first: ")
    assert found.notes[0].endswith("t.json: record 2: a value of type int, expected a JSON object")


def test_parquet_gives_back_every_column(tmp_path: Path) -> None:
    found = read([written(tmp_path, *({**record, "session_id": "s"} for record in MOONCAKE))])
    write_parquet(found, str(tmp_path / "t.parquet"))
    again = read([str(tmp_path / "t.parquet")])
    for name in ("offsets", "ids", "time", "input_tokens", "output_tokens", "session", "model", "tenant"):
        assert getattr(again, name).tolist() == getattr(found, name).tolist(), name
    assert (again.block_size, dict(again.names), again.notes) == (16, dict(found.names), found.notes)
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".part"] == []


@given(st.lists(st.lists(st.integers(0, 1), max_size=11), min_size=1, max_size=6), st.integers(1, 4))
def test_two_token_paths_share_exactly_their_full_common_blocks(prompts: list[list[int]], size: int) -> None:
    chain = TokenChain(block_size=size)
    made = [chain.path(tokens) for tokens in prompts]
    for left, one in zip(prompts, made, strict=True):
        assert len(one) == len(left) // size
        for right, two in zip(prompts, made, strict=True):
            common = sum(left[: k + 1] == right[: k + 1] for k in range(min(len(left), len(right))))
            assert len(set(one) & set(two)) == common // size


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=6), st.integers(1, 7))
def test_pieces_are_chained_as_their_tokens_are(prompts: list[list[int]], size: int) -> None:
    """Piece p is 5 + 2p tokens that only p has: the tokens' own chain must see the same blocks."""
    pieces, tokens = PieceChain(block_size=size), TokenChain(block_size=size)
    by_pieces, by_tokens = [], []
    for prompt in prompts:
        firsts, counts = pieces.path([(p, 5 + 2 * p) for p in prompt])
        by_pieces.append([first + k for first, count in zip(firsts, counts, strict=True) for k in range(count)])
        by_tokens.append(tokens.path([10 * p + k for p in prompt for k in range(5 + 2 * p)]))
    names: dict[int, int] = {}
    for one, two in zip(by_pieces, by_tokens, strict=True):
        assert len(one) == len(two)
        assert all(names.setdefault(a, b) == b for a, b in zip(one, two, strict=True))
    assert len(set(names.values())) == len(names)


def test_coarser_blocks_are_full_ones() -> None:
    found = coarsened(Requests.of([[0, 1, 2, 3, 4], [0, 1, 5], [6]], block_size=16), 32)
    assert paths(found) == [[1, 3], [1], []]


@shared
def test_the_mooncake_release() -> None:
    found = read([str(SHARED / "mooncake" / "conversation_trace.jsonl")])
    assert (len(found), found.accesses, found.block_size) == (12_031, 288_500, 512)
    assert len(read([str(SHARED / "mooncake" / "synthetic_trace.jsonl")])) == 3_993


@shared
def test_the_claude_code_traces_and_back_through_parquet(tmp_path: Path) -> None:
    found = read([str(SHARED / "kv-cache-tester" / "claude_code_710_runs.jsonl.zst")])
    assert (len(found), found.accesses, found.block_size) == (49_334, 94_310_647, 64)
    write_parquet(found, str(tmp_path / "c.parquet"))
    again = read_parquet(str(tmp_path / "c.parquet"))
    assert np.array_equal(again.ids, found.ids)
    assert np.array_equal(again.offsets, found.offsets)


@shared
def test_no_hit_of_ragpulse_is_past_a_changed_piece() -> None:
    """The ceiling, from the pieces themselves: no request hits more than the longest prefix of pieces seen before."""
    found = read([str(SHARED / "ragpulse" / "0_trace.jsonl")])
    hits = runs(found).hits()
    lengths: dict[tuple[str, int], int] = {}
    sides = {"sys_prompt": "1_sys_prompt", "passages_ids": "2_passages", "history": "3_history",
             "web_search": "5_web_search", "user_input": "4_user_input"}  # fmt: skip
    for group, file in sides.items():
        for line in (SHARED / "ragpulse" / f"{file}.jsonl").read_text().splitlines():
            if line.strip():
                piece, tokens = json.loads(line).values()
                lengths[group, piece] = tokens
    lines = (SHARED / "ragpulse" / "0_trace.jsonl").read_text().splitlines()
    records = sorted((json.loads(line) for line in lines if line.strip()), key=lambda one: float(one["timestamp"]))
    seen: set[tuple[tuple[str, int], ...]] = set()
    for r, record in enumerate(records):
        path = [(group, piece) for group in sides for piece in record["hash_ids"][group]]
        prefixes = [tuple(path[: k + 1]) for k in range(len(path))]
        common = sum(1 for prefix in prefixes if prefix in seen)
        ceiling = sum(lengths[piece] for piece in path[:common])
        assert hits[r] == ceiling // 16, r
        seen.update(prefixes)


def test_a_tokenizer_that_no_record_needs_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"token_ids": [1, 2, 3]}\n')
    found = read([str(tmp_path / "t.jsonl")], block_size=2, tokenizer="tokenizer.json")
    assert "no record holds text: the tokenizer was not used" in found.notes
