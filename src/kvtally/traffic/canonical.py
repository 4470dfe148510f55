"""Requests as one Parquet file, ids delta-coded: what `replay convert` writes and reads fastest."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvtally.core.errors import InputError, UnreadableError
from kvtally.traffic.requests import Requests

MAGIC = b"PAR1"
KEY = b"kvtally.requests"
VERSION = 1
ROWS = 4096  # requests of a row group, so that a reader holds few at a time
NUMBERS = ("input_tokens", "output_tokens", "session", "model", "tenant")


def write_parquet(requests: Requests, path: str) -> None:
    """Writes the requests to `path`; what was there stays until all is written."""
    columns = {"time": pa.array(requests.time)} | {name: pa.array(getattr(requests, name)) for name in NUMBERS}
    columns["blocks"] = pa.array(np.diff(requests.offsets))
    columns["ids"] = pa.LargeListArray.from_arrays(pa.array(requests.offsets), pa.array(requests.ids))
    about = {
        "version": VERSION,
        "block_size": requests.block_size,
        "names": {name: list(values) for name, values in requests.names.items()},
        "notes": list(requests.notes),
    }
    table = pa.table(columns).replace_schema_metadata({KEY: json.dumps(about).encode()})
    half = Path(f"{path}.{os.getpid()}.part")
    delta = {name: "DELTA_BINARY_PACKED" for name in (*NUMBERS, "ids.list.element")}
    try:
        pq.write_table(
            table, half, row_group_size=ROWS, use_dictionary=False, compression="zstd", column_encoding=delta
        )
        half.replace(path)
    except OSError as error:
        raise UnreadableError(f"cannot be written: {error.strerror or error}", where=path) from None
    finally:
        half.unlink(missing_ok=True)


def read_parquet(path: str) -> Requests:
    """The requests that `write_parquet` wrote."""
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(f"cannot be read as Parquet ({str(error)[:80]})", where=path) from None
    about = json.loads((file.schema_arrow.metadata or {}).get(KEY, b"{}"))
    if about.get("version") != VERSION:
        raise InputError(
            "Parquet of another kind, expected a file that `kvtally replay convert` wrote",
            where=path,
            hint="convert the trace itself: kvtally replay convert TRACE… --to FILE.parquet",
        )
    columns = file.read(["blocks", "time", *NUMBERS])
    counts = columns["blocks"].to_numpy()
    ids, at = np.empty(int(counts.sum()), dtype=np.int64), 0
    for group in range(file.num_row_groups):
        for chunk in file.read_row_group(group, columns=["ids"])["ids"].chunks:
            some = chunk.flatten().to_numpy()
            ids[at : at + len(some)] = some
            at += len(some)
    return Requests(
        offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]),
        ids=ids,
        time=columns["time"].to_numpy(),
        block_size=about["block_size"],
        names={name: tuple(values) for name, values in about["names"].items()},
        notes=tuple(about["notes"]),
        **{name: columns[name].to_numpy() for name in NUMBERS},
    )
