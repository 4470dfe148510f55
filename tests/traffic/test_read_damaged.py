"""Files with a byte that is not what was written: refused by name, or the same answer; never a traceback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from kvtally.core.errors import KvtallyError, UnreadableError
from kvtally.traffic.canonical import KEY, write_parquet
from kvtally.traffic.read import read
from kvtally.traffic.requests import PER_REQUEST, Requests

RECORDS = [{"timestamp": 10 * n, "input_length": 48, "output_length": n % 7, "hash_ids": [0, n // 2 + 1, n + 100],
            "block_size": 16, "session_id": f"s{n % 5}"} for n in range(40)]  # fmt: skip
LINES = "".join(json.dumps(one) + "\n" for one in RECORDS).encode()


def flipped(data: bytes, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """The data with one bit of every `step`-th byte turned, each bit in turn."""
    for n, at in enumerate(range(0, len(data), step)):
        yield at, data[:at] + bytes([data[at] ^ 1 << n % 8]) + data[at + 1 :]


def columns(found: Requests) -> list[object]:
    return [found.block_size, dict(found.names), found.notes,
            *(getattr(found, name).tolist() for name in ("offsets", "ids", *PER_REQUEST))]  # fmt: skip


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.json.gz", "t.jsonl.zst", "t.json.zst"])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_compressed_file_with_a_bit_turned(tmp_path: Path, name: str, skip_bad: bool) -> None:
    gz = name.endswith("gz")
    packed = gzip.compress(LINES, mtime=0) if gz else pa.compress(LINES, codec="zstd", asbytes=True)
    file, seen = tmp_path / name, set()
    for _, data in flipped(packed):
        file.write_bytes(data)
        try:
            seen.add(len(read([str(file)], skip_bad=skip_bad)))
        except KvtallyError as error:
            seen.add(str(error).partition(" (")[0].partition("the compressed")[2])
    assert {40, " data is cut short or damaged"} <= seen


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    (tmp_path / "t.jsonl").write_bytes(LINES)
    write_parquet(read([str(tmp_path / "t.jsonl")]), str(tmp_path / "t.parquet"))
    return tmp_path / "t.parquet"


def test_a_converted_file_with_a_bit_turned_is_refused_or_reads_the_same(converted: Path) -> None:
    whole, wanted, seen = converted.read_bytes(), columns(read([str(converted)])), set()
    for at, data in flipped(whole):
        converted.write_bytes(data)
        try:
            assert columns(read([str(converted)])) == wanted, at
        except KvtallyError as error:
            seen.add(str(error).removeprefix(f"{converted}: ").partition(" (")[0])
    assert {"is damaged", "cannot be read as Parquet"} <= seen


def test_a_bit_turned_among_the_ids_is_named_with_its_file(converted: Path) -> None:
    whole = converted.read_bytes()
    ids = pq.ParquetFile(converted).metadata.row_group(0).column(8)
    assert ids.path_in_schema.startswith("ids.")
    at = ids.data_page_offset + ids.total_compressed_size - 9
    converted.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(UnreadableError, match=r"t\.parquet: is damaged \(could not verify page integrity, CRC"):
        read([str(converted)])


def test_a_file_converted_before_there_were_checksums(converted: Path) -> None:
    wanted = columns(read([str(converted)]))
    table = pq.read_table(converted)
    about = json.loads(table.schema.metadata[KEY])
    del about["requests"]
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(about).encode()}), converted)
    assert columns(read([str(converted)])) == wanted
