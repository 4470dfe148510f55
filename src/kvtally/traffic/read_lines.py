"""Records of trace files: plain, .gz, .zst, stdin, globs; what cannot be read is named with its line."""

from __future__ import annotations

import glob
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from kvtally.core.errors import InputError, KvtallyError, UnreadableError
from kvtally.traffic.canonical import files_at

LONGEST = 256 * 2**20  # bytes of a line, or of a document
STDIN = "-"
EVERY = 1 << 16  # bytes between two reports of progress, and read at a time where they are passed over
DAMAGE = (EOFError, OSError, zlib.error)  # what reading a damaged file raises
PICKLES = (".pkl", ".pickle")

Progress = Callable[[str, int, int], None]  # file, how much of it is read, of how much (0: not known)
Record = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Bad:
    """Records that cannot be read: fatal, or skipped and counted, with the first of them kept."""

    skip: bool = False
    count: int = 0
    first: str = ""

    def met(self, error: KvtallyError) -> None:
        if not self.skip:
            raise error
        self.count += 1
        self.first = self.first or str(error).split("\n", 1)[0]


def expand(patterns: Iterable[str]) -> list[str]:
    """The files that patterns name, each pattern's in order of name; `-` is stdin; a folder stands for its files."""
    files: list[str] = []
    for pattern in patterns:
        try:
            found = _named(pattern)
        except OSError as error:
            raise UnreadableError(f"cannot be read: {error.strerror}", where=pattern) from None
        if not found:
            raise UnreadableError("no such file, expected a trace", where=pattern)
        files += found
    return files


def _named(pattern: str) -> list[str]:
    if pattern == STDIN:
        return [pattern]
    if "://" in pattern:
        return files_at(pattern)
    if Path(pattern).is_dir():
        return sorted(str(path) for path in Path(pattern).iterdir() if path.is_file())
    return [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207


def bare_name(path: str) -> str:
    """The name without the ending of its compression."""
    return path.removesuffix(".gz").removesuffix(".zst")


def size_of(path: str) -> int:
    """Bytes of a file; 0 where nobody can know before it is read."""
    return Path(path).stat().st_size if path != STDIN and Path(path).is_file() else 0


def head(path: str) -> bytes:
    """The first 4 bytes of a file that is not compressed; b"" of any other, and of what cannot be read twice."""
    if not size_of(path):
        return b""
    with opened(path) as (stream, raw):
        return stream.read(4) if stream is raw else b""


def records(
    path: str, bad: Bad, progress: Progress | None = None, *, plain: str | None = None
) -> Iterator[tuple[str, Record]]:
    """(`file:line`, record) of each JSON object; a `.json` file is one object or a list of them.

    With `plain`, a line that is no JSON object is the record {plain: line}: a log has both.
    """
    document = _document(path) if bare_name(path).endswith(".json") else None
    for n, record in enumerate(document or (), start=1):
        if progress:
            progress(path, n, len(document or ()))
        try:
            yield f"{path}: record {n}", _checked(record)
        except InputError as error:
            bad.met(error.at(f"{path}: record {n}"))
    for where, line in () if document is not None else lines(path, bad, progress):
        try:
            if plain is not None and not line.lstrip().startswith(b"{"):
                yield where, {plain: line.decode("utf-8", errors="replace").rstrip("\n")}
            else:
                yield where, _checked(_parsed(line))
        except InputError as error:
            bad.met(error.at(where))


def lines(path: str, bad: Bad, progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
    """(`file:line`, bytes) of each line that is not blank."""
    size = size_of(path)
    with opened(path) as (stream, raw):
        number = since = 0
        while line := _line(stream, path, number + 1, bad):
            number, since = number + 1, since + len(line)
            if progress and since >= EVERY:
                since = 0
                progress(path, raw.tell() if size else 0, size)
            if line.strip():
                yield f"{path}:{number}", line


class opened:
    """The decompressed bytes of a file and the file itself; refuses pickles and what cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> tuple[BinaryIO, BinaryIO]:
        try:
            self.raw = sys.stdin.buffer if self.path == STDIN else Path(self.path).open("rb")
        except OSError as error:
            raise UnreadableError(f"cannot be read: {error.strerror}", where=self.path) from None
        buffered = cast(io.BufferedReader, self.raw)
        first = buffered.peek(4)[:4]
        if bare_name(self.path).endswith(PICKLES) or first[:1] == b"\x80":
            raise InputError(
                "a pickle runs code when it is loaded, expected JSON lines or Parquet",
                where=self.path,
                hint='write {"token_ids": […], "timestamp": …} lines where the pickle was made',
            )
        if first[:2] == b"\x1f\x8b":
            return cast(BinaryIO, gzip.GzipFile(fileobj=buffered)), buffered
        if first == b"\x28\xb5\x2f\xfd":
            return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(buffered), "zstd")), buffered
        return buffered, buffered

    def __exit__(self, *_: object) -> None:
        if self.path != STDIN:
            self.raw.close()


def _line(stream: BinaryIO, path: str, number: int, bad: Bad) -> bytes:
    """The next line; b"" at the end. A line over LONGEST is bad, and its rest is passed over."""
    try:
        line = stream.readline(LONGEST + 1)
        if len(line) <= LONGEST:
            return line
        bad.met(InputError(f"a line of more than {LONGEST >> 20} MiB, expected a request", where=f"{path}:{number}"))
        while line and not line.endswith(b"\n"):
            line = stream.readline(EVERY)
        return b"\n"
    except DAMAGE as error:
        raise _damaged(error, f"{path}:{number}") from None


def _damaged(error: Exception, where: str) -> UnreadableError:
    return UnreadableError(
        f"the compressed data is cut short or damaged ({str(error)[:60]}), expected a whole file",
        where=where,
        hint="copy the file again; what came before this line was good",
    )


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:40].decode("utf-8", errors="replace").strip()
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"`{shown}…` is not JSON ({reason}), expected one request a line") from None


def _checked(record: object) -> Record:
    if not isinstance(record, dict):
        raise InputError(f"a value of type {type(record).__name__}, expected a JSON object")
    return record


def _document(path: str) -> list[object] | None:
    """The records of a file that is one JSON text; None where it is something else, such as lines."""
    try:
        with opened(path) as (stream, _):
            text = stream.read(LONGEST + 1)
        if len(text) <= LONGEST:
            document = json.loads(text)
            return document if isinstance(document, list) else [document]
    except (ValueError, RecursionError):
        return None
    except DAMAGE as error:
        raise _damaged(error, path) from None
    return None
