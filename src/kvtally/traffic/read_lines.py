"""Records of trace files: plain, .gz, .zst, stdin, globs; what cannot be read is named with its line."""

from __future__ import annotations

import glob
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from kvtally.core.errors import InputError, KvtallyError, UnreadableError

LONGEST = 256 * 2**20  # bytes of a line
STDIN = "-"
EVERY = 512  # lines between two reports of progress
PICKLES = (".pkl", ".pickle")

Progress = Callable[[str, int, int], None]  # file, bytes read of it, its bytes


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
        if pattern == STDIN or "://" in pattern:
            found = [pattern]
        elif Path(pattern).is_dir():
            found = sorted(str(path) for path in Path(pattern).iterdir() if path.is_file())
        else:
            found = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
        if not found:
            raise UnreadableError("no such file, expected a trace", where=pattern)
        files += found
    return files


def records(path: str, bad: Bad, progress: Progress | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, record) of each JSON object; a `.json` file is one object or a list of them."""
    bare = path.removesuffix(".gz").removesuffix(".zst")
    if bare.endswith(".json"):
        for n, record in enumerate(_document(path), start=1):
            if progress:
                progress(path, n, n)
            yield f"{path}: record {n}", record
        return
    for where, line in lines(path, bad, progress):
        try:
            yield where, _object(line)
        except InputError as error:
            bad.met(error.at(where))


def lines(path: str, bad: Bad, progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
    """(`file:line`, bytes) of each line that is not blank."""
    size = Path(path).stat().st_size if Path(path).exists() else 0
    with opened(path) as (stream, raw):
        number = 0
        while line := _line(stream, path, number + 1, bad):
            number += 1
            if progress and number % EVERY == 0:
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
        head = buffered.peek(4)[:4]
        if self.path.removesuffix(".gz").removesuffix(".zst").endswith(PICKLES) or head[:1] == b"\x80":
            raise InputError(
                "a pickle runs code when it is loaded, expected JSON lines or Parquet",
                where=self.path,
                hint='write {"token_ids": […], "timestamp": …} lines where the pickle was made',
            )
        if head[:2] == b"\x1f\x8b":
            return cast(BinaryIO, gzip.GzipFile(fileobj=buffered)), buffered
        if head == b"\x28\xb5\x2f\xfd":
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
            line = stream.readline(LONGEST)
        return b"\n"
    except (EOFError, OSError) as error:
        raise UnreadableError(
            f"the compressed data is cut short or damaged ({str(error)[:60]}), expected a whole file",
            where=f"{path}:{number}",
            hint="copy the file again; what came before this line was good",
        ) from None


def _object(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:40].decode("utf-8", errors="replace").strip()
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"`{shown}…` is not JSON ({reason}), expected one request a line") from None
    if not isinstance(record, dict):
        raise InputError(f"a {type(record).__name__}, expected a JSON object")
    return record


def _document(path: str) -> list[dict[str, Any]]:
    try:
        with opened(path) as (stream, _):
            document = json.loads(stream.read())
    except (ValueError, RecursionError):  # lines in a file named .json
        return [_object_at(where, line) for where, line in lines(path, Bad())]
    except (EOFError, OSError) as error:
        raise UnreadableError(f"the compressed data is cut short ({str(error)[:60]})", where=path) from None
    found = document if isinstance(document, list) else [document]
    if not all(isinstance(one, dict) for one in found):
        raise InputError("a list with something else than objects in it, expected requests", where=path)
    return found


def _object_at(where: str, line: bytes) -> dict[str, Any]:
    try:
        return _object(line)
    except InputError as error:
        raise error.at(where) from None
