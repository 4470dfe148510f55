"""Public trace formats, logs, Parquet -> request blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, KvtallyError
from kvtally.traffic import canonical, read_blocks, read_claude_code, read_text
from kvtally.traffic.coarsen import coarsened
from kvtally.traffic.read_lines import STDIN, Bad, Progress, expand, lines, opened, records
from kvtally.traffic.requests import Requests
from kvtally.traffic.rows import Columns, Row
from kvtally.traffic.tree import check_tree

Reader = Callable[[dict[str, Any], int | None], Iterator[Row]]
FORMATS = ("mooncake", "bailian", "weka", "ragpulse", "lmcache", "tokens", "chat", "otel", "claude-code")
CUT = ("ragpulse", "tokens", "chat", "otel", "claude-code")  # blocks are made here, in any size
NOTES = {
    "claude-code": read_claude_code.NOTE,
    "ragpulse": "pieces are chained in the order of the prompt; tokens of its frame belong to no piece",
    "chat": read_text.NOTE,
    "otel": read_text.NOTE,
    "weka": "ids and times are local to a session: all sessions start at once and share nothing",
}
LENGTHS_ONLY = (
    "input_length",
    "ContextTokens",
    "Request tokens",
    "prompt_tokens",
    "input_tokens",
    "num_prefill_tokens",
)
REFUSED_LENGTHS = "only lengths, which cannot tell what two prompts share, expected block ids, token ids or messages"


def read(
    traces: Sequence[str],
    *,
    form: str | None = None,
    block_size: int | None = None,
    trace_block_size: int | None = None,
    tokenizer: str | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Requests:
    """The requests of all files (plain, .gz, .zst, .parquet, `-` for stdin, globs), in order of time.

    `form`: one of FORMATS, found from the first record where it is None. `block_size` coarsens block ids, and is the
    size that tokens and text are cut into. A record that cannot be read is an InputError that names file and line,
    or skipped and counted in `notes` with `skip_bad`. An id with two parents is an InputError with both.
    """
    files, bad = expand(traces), Bad(skip=skip_bad)
    parquet = [file for file in files if _magic(file) == canonical.MAGIC]
    if parquet:
        if len(files) > 1:
            raise InputError(f"`{parquet[0]}` is Parquet and {len(files):,} files are given, expected one")
        found = canonical.read_parquet(parquet[0])
    else:
        text = read_text.Text(tokenizer_file=tokenizer)
        asked = _Asked(form=form, size=block_size, trace_size=trace_block_size, text=text)
        found = _gathered(files, asked, bad, progress)
    check_tree(found)
    return found if block_size in (None, found.block_size) else coarsened(found, block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    form: str | None
    size: int | None
    trace_size: int | None
    text: read_text.Text

    def block_size(self, form: str) -> int | None:
        """The size of blocks, where the trace does not say it: text and pieces are cut into what is asked for."""
        return self.trace_size or (self.size if form in CUT else None)


def _gathered(files: list[str], asked: _Asked, bad: Bad, progress: Progress | None) -> Requests:
    columns, readers, form = Columns(), dict[str, Reader](), asked.form
    for file in files:
        for where, record in records_of(file, bad, progress):
            try:
                form = asked.form or known_as(record, form)
                if form not in readers:
                    readers[form] = reader_of(form, file, asked.text)
                scope = columns.blocks if form == "weka" else 0  # ids local to a record
                for row in [*readers[form](record, asked.block_size(form))]:  # all of a record, or none
                    columns.add(row, scope)
            except KvtallyError as error:
                bad.met(error.at(where))
    notes = [f"{bad.count:,} bad records skipped, the first: {bad.first}"] if bad.count else []
    notes += [NOTES[form]] if form in NOTES else []
    return columns.requests(notes, sides=form == "weka")


def records_of(file: str, bad: Bad, progress: Progress | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of a file; a CSV is refused with the reason."""
    if file.removesuffix(".gz").removesuffix(".zst").endswith((".csv", ".tsv")):
        _, head = next(lines(file, bad), ("", b""))
        raise InputError(f"columns {head.decode(errors='replace').strip():.80}: {REFUSED_LENGTHS}", where=file)
    return records(file, bad, progress)


def known_as(record: dict[str, Any], before: str | None = None) -> str:
    """The format of a record, from the fields it has; `before` where it is a line of a log without a request."""
    names = set(record)
    attributes = str(record.get("attributes", ""))
    tests = (
        ("ragpulse", isinstance(record.get("hash_ids"), dict)),
        ("weka", {"requests", "block_size"} <= names),
        ("bailian", {"hash_ids", "chat_id"} <= names),
        ("mooncake", "hash_ids" in names),
        ("lmcache", "chunk_hashes" in names),
        ("tokens", any(name in names for name in read_text.TOKENS)),
        ("otel", "resourceSpans" in names or "gen_ai." in attributes),
        ("claude-code", "sessionId" in names and "uuid" in names),
        ("chat", "messages" in names or "messages" in (record.get("body") or ())),
    )
    for form, fits in tests:
        if fits:
            return form
    if before is not None and before in ("claude-code", "otel"):
        return before  # summaries, snapshots, spans of other kinds
    _refuse(record, names)
    raise AssertionError


def _refuse(record: dict[str, Any], names: set[str]) -> None:
    shown = ", ".join(f"`{name}`" for name in sorted(names)[:8])
    if "events" in names or {"block_hashes", "parent_block_hash"} & names:
        raise InputError("KV events tell what was stored and removed, not what was asked for, expected requests")
    if any(name in names for name in LENGTHS_ONLY):
        raise InputError(f"fields {shown}: {REFUSED_LENGTHS}")
    if "type" in names and record.get("type") in ("summary", "file-history-snapshot", "queue-operation"):
        raise InputError("a Claude Code log that begins without a request", hint="name it: --trace-format claude-code")
    raise InputError(
        f"fields {shown or 'none'} are of no known format; known: " + ", ".join(f"`{form}`" for form in FORMATS),
        hint='or write {"token_ids": […], "timestamp": …} lines',
    )


def reader_of(form: str, file: str, text: read_text.Text) -> Reader:
    """The reader of a format; an InputError where there is none."""
    if form not in FORMATS:
        raise InputError(f"`--trace-format` is {form!r:.40}; known: " + ", ".join(f"`{one}`" for one in FORMATS))
    readers: dict[str, Reader] = {
        "mooncake": read_blocks.mooncake,
        "bailian": read_blocks.Bailian(),
        "weka": read_blocks.weka,
        "ragpulse": read_blocks.RagPulse(Path(file).parent),
        "lmcache": read_blocks.LMCache(),
        "tokens": text.tokens,
        "chat": text.chat,
        "otel": text.spans,
        "claude-code": read_claude_code.ClaudeCode(),
    }
    return readers[form]


def _magic(file: str) -> bytes:
    if file == STDIN:
        return b""
    with opened(file) as (stream, raw):
        return stream.read(4) if stream is raw else b""
