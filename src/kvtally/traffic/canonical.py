"""Requests as one Parquet file, ids delta-coded: what `replay convert` writes and reads fastest."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kvtally.core.errors import InputError, UnreadableError
from kvtally.traffic.requests import PER_REQUEST, Ids, Ints, Requests, whole_number

MAGIC = b"PAR1"
KEY, SUM = b"kvtally.requests", b"kvtally.crc32"  # what the file says about itself, and the checksum of that
VERSION = 1
ROWS = 4096  # requests of a row group, so that a reader holds few at a time
NUMBERS = ("input_tokens", "output_tokens", "session", "model", "tenant")
PLACE = "number"  # the column that says which request of its file a row is
COLUMNS = pa.schema([("time", pa.float64()), *((name, pa.int64()) for name in (*NUMBERS, "blocks"))])
# what reading a damaged file raises: turned bytes of a footer may name columns and types that were never written
DAMAGE = (OSError, pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def write_parquet(requests: Requests, path: str) -> None:
    """Writes the requests to `path`; what was there stays until all is written."""
    columns = {"time": pa.array(requests.time)} | {name: pa.array(getattr(requests, name)) for name in NUMBERS}
    columns[PLACE] = pa.array(np.arange(len(requests)))
    columns["blocks"] = pa.array(np.diff(requests.offsets))
    ids = requests.ids.astype(whole_number(requests.blocks), copy=False)
    columns["ids"] = pa.LargeListArray.from_arrays(pa.array(requests.offsets), pa.array(ids))
    about = {
        "version": VERSION,
        "requests": len(requests),
        "block_size": requests.block_size,
        "blocks": requests.blocks,
        "names": {name: list(values) for name, values in requests.names.items()},
        "notes": list(requests.notes),
    }
    said = json.dumps(about).encode()
    table = pa.table(columns).replace_schema_metadata({KEY: said, SUM: _sum(said)})
    half = Path(f"{path}.{os.getpid()}.part")
    delta = {name: "DELTA_BINARY_PACKED" for name in (*NUMBERS, PLACE, "blocks", "ids.list.element")}
    try:
        pq.write_table(
            table,
            half,
            row_group_size=ROWS,
            use_dictionary=False,
            compression="zstd",
            column_encoding=delta,
            write_page_checksum=True,
        )
        half.replace(path)
    except OSError as error:
        raise UnreadableError(f"cannot be written: {error.strerror or error}", where=path) from None
    finally:
        half.unlink(missing_ok=True)


def files_at(address: str) -> list[str]:
    """The files that `scheme://…` names, with * in its last part, in order of name; `?` begins options of its store."""
    folder, pattern = address.partition("?")[0].rsplit("/", 1)
    options = address[len(folder) + 1 + len(pattern) :]
    try:
        if "*" not in pattern:
            system, path = pafs.FileSystem.from_uri(address)
            return [address] if system.get_file_info(path).is_file else []
        system, path = pafs.FileSystem.from_uri(folder + options)
        found = [one.base_name for one in system.get_file_info(pafs.FileSelector(path)) if one.is_file]
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(f"cannot be listed ({str(error)[:120]})", where=address) from None
    return sorted(f"{folder}/{name}{options}" for name in found if fnmatch(name, pattern))


def stored(path: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or an address, and the path in it."""
    if "://" not in path:
        return pafs.LocalFileSystem(), str(Path(path).absolute())
    system, inner = pafs.FileSystem.from_uri(path)
    return system, str(inner)


def opened(path: str) -> pq.ParquetFile:
    """The Parquet file at a path or an address; UnreadableError where there is none."""
    try:
        system, inner = stored(path)
        return pq.ParquetFile(inner, filesystem=system, page_checksum_verification=True)
    except DAMAGE as error:
        raise UnreadableError(f"cannot be read as Parquet ({str(error)[:80]})", where=path) from None


@contextmanager
def _sound(path: str) -> Iterator[None]:
    """Around what reads from an open file: an UnreadableError where that finds it damaged."""
    try:
        yield
    except DAMAGE as error:
        raise UnreadableError(f"is damaged ({str(error)[:80]})", where=path) from None


def is_canonical(path: str) -> bool:
    """Whether `replay convert` wrote the file."""
    return KEY in (opened(path).schema_arrow.metadata or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Requests of several files one after another, not yet in order of time.

    File k has the requests from `first[k]` on; `scope[k]` is added to its ids, `sessions[k]` to its sessions.
    """

    requests: Requests
    first: tuple[int, ...]
    scope: tuple[int, ...]
    sessions: tuple[int, ...]
    blocks: int

    @property
    def order(self) -> Ints:
        """The requests in order of time; of equal times in order of the files."""
        return np.argsort(self.requests.time, kind="stable")


def read_parquet(*paths: str) -> Requests:
    """The requests that `write_parquet` wrote, in order of time.

    Ids mean something in their own file alone: of several files none shares a block with another, and each is a
    tenant, named after its path.
    """
    files = read_files(paths)
    return files.requests if len(paths) == 1 else files.requests.chosen(files.order)


def read_files(paths: Sequence[str], *, ids: bool = True) -> Files:
    """The requests of several files; all but their ids where `ids` is False."""
    files, about, columns = zip(*map(_read, paths), strict=True)
    sizes = {one["block_size"] for one in about}
    if len(sizes) > 1:
        raise InputError(
            f"files with blocks of {' and '.join(f'{size:,}' for size in sorted(sizes))} tokens, expected one size",
            hint="replay them one at a time",
        )
    scope = _before([one["blocks"] for one in about])
    names, numbers = _named(paths, about, columns)
    counts = np.concatenate([table["blocks"].to_numpy() for table in columns])
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    whole = np.empty(int(offsets[-1]) if ids else 0, dtype=whole_number(scope[-1]))
    if ids:
        at = 0
        for path, file, shift in zip(paths, files, scope, strict=False):
            with _sound(path):
                at = _fill(whole, at, file, shift)
    notes = [note for one in about for note in one["notes"]]
    if len(paths) > 1:
        notes.append(f"{len(paths):,} files: ids are local to a file, so each is a tenant and shares nothing")
    return Files(
        requests=Requests(
            offsets=offsets,
            ids=whole,
            block_size=about[0]["block_size"],
            names=names,
            notes=tuple(dict.fromkeys(notes)),
            **numbers,
        ),
        first=_before([table.num_rows for table in columns])[:-1],
        scope=scope[:-1],
        sessions=_before([len(one["names"]["session"]) for one in about])[:-1],
        blocks=scope[-1],
    )


def _read(path: str) -> tuple[pq.ParquetFile, dict[str, Any], pa.Table]:
    """A converted file, what it says about itself, and its columns but the ids."""
    file = opened(path)
    with _sound(path):
        about = _about(file, path)
        table = file.read(COLUMNS.names).select(COLUMNS.names).cast(COLUMNS)
        if table.num_rows != about.get("requests", table.num_rows):
            raise ValueError(f"{table.num_rows:,} requests of {about['requests']:,}")
    return file, about, table


def _about(file: pq.ParquetFile, path: str) -> dict[str, Any]:
    metadata = file.schema_arrow.metadata or {}
    said = metadata.get(KEY, b"{}")
    if metadata.get(SUM, _sum(said)) != _sum(said):
        raise ValueError("what it says about itself has another checksum")
    about: dict[str, Any] = json.loads(said)
    if about.get("version") != VERSION:
        raise InputError(
            "Parquet of another kind, expected a file that `kvtally replay convert` wrote",
            where=path,
            hint="convert the trace itself: kvtally replay convert TRACE… --to FILE.parquet",
        )
    return about


def _sum(said: bytes) -> bytes:
    return f"{zlib.crc32(said):08x}".encode()


def _before(counts: Sequence[int]) -> tuple[int, ...]:
    """0, the first, the first two …: where each begins, and where the last ends."""
    return tuple(int(n) for n in np.concatenate([[0], np.cumsum(counts)]))


def _fill(whole: Ids, at: int, file: pq.ParquetFile, shift: int) -> int:
    """Puts the ids of a file into `whole` from `at` on, a row group at a time; where they end."""
    for group in range(file.num_row_groups):
        for chunk in file.read_row_group(group, columns=["ids"])["ids"].chunks:
            some = chunk.flatten().to_numpy()
            whole[at : at + len(some)] = some
            if shift:
                whole[at : at + len(some)] += shift
            at += len(some)
    return at


def _named(
    paths: Sequence[str], about: Sequence[dict[str, Any]], columns: Sequence[pa.Table]
) -> tuple[dict[str, tuple[str, ...]], dict[str, NDArray[Any]]]:
    """Names, and columns of numbers. A model is the same in all files; a session or tenant is of its file alone."""
    numbers = {name: np.concatenate([table[name].to_numpy() for table in columns]) for name in PER_REQUEST}
    if len(paths) == 1:
        return {name: tuple(values) for name, values in about[0]["names"].items()}, numbers
    names: dict[str, tuple[str, ...]] = {}
    for name in ("session", "model", "tenant"):
        known: dict[str, int] = {}
        parts = []
        for path, one, table in zip(paths, about, columns, strict=True):
            own = [value if name == "model" else f"{path}: {value}" if value else path for value in one["names"][name]]
            numbered = np.array([known.setdefault(value, len(known)) for value in own], dtype=np.int64)
            parts.append(numbered[table[name].to_numpy()])
        names[name], numbers[name] = tuple(known), np.concatenate(parts)
    return names, numbers
