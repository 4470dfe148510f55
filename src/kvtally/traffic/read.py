"""Public trace formats, logs, Parquet -> request blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, KvtallyError
from kvtally.traffic import (
    canonical,
    read_blocks,
    read_claude_code,
    read_langfuse,
    read_parquet,
    read_sglang,
    read_spans,
    read_text,
)
from kvtally.traffic.coarsen import coarsened
from kvtally.traffic.read_lines import Bad, Progress, bare_name, expand, head, lines, records, size_of
from kvtally.traffic.requests import Requests
from kvtally.traffic.rows import Columns, Row
from kvtally.traffic.tree import check_tree

Record = dict[str, Any]
Reader = Callable[[Record, int | None], Iterator[Row]]
FORMATS = (
    "mooncake", "bailian", "weka", "ragpulse", "lmcache", "tokens", "chat", "otel", "langfuse", "sglang", "claude-code",
)  # fmt: skip
CUT = ("ragpulse", "tokens", "chat", "otel", "langfuse", "sglang", "claude-code")  # blocks are made here, in any size
LOGS = ("claude-code", "otel", "langfuse", "sglang")  # may have lines that are no requests and look like nothing known
NOTES = {
    "claude-code": read_claude_code.NOTE,
    "ragpulse": "pieces are chained in the order of the prompt; tokens of its frame belong to no piece",
    "chat": read_text.NOTE,
    "otel": read_text.NOTE,
    "langfuse": read_text.NOTE,
    "weka": "ids and times are local to a session: all sessions start at once and share nothing, so "
    "that the memory is what they need side by side",
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
    """The requests of all files (plain, .gz, .zst, Parquet, `-` for stdin, globs), in order of time.

    `form`: one of FORMATS, found from the records where it is None. `block_size` coarsens block ids, and is the
    size that tokens and text are cut into. A record that cannot be read is an InputError that names file and line,
    or skipped and counted in `notes` with `skip_bad`. An id with two parents is an InputError with both.
    """
    files, bad = expand(traces), Bad(skip=skip_bad)
    ours = [file for file in files if "://" in file or (head(file) == canonical.MAGIC and canonical.is_canonical(file))]
    if ours:
        if len(files) > len(ours):
            other = next(file for file in files if file not in ours)
            raise InputError(f"`{ours[0]}` is converted already and `{other}` is not, expected all or none to be")
        found = canonical.read_parquet(*ours)
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

    def notes(self, form: str | None, bad: Bad) -> list[str]:
        """What was skipped, what was left out, and what the format cannot say."""
        skipped = "1 bad record" if bad.count == 1 else f"{bad.count:,} bad records"
        notes = [f"{skipped} skipped, the first: {bad.first}"] if bad.count else []
        notes += [f"left out: {n:,} {what}" for what, n in self.text.left_out.items() if n]
        if form == "claude-code" and self.text.tokenizer_file is not None:
            return [*notes, read_claude_code.NOTE_TEXT]
        if self.text.tokenizer_file is not None and self.text.tokenizer is None:
            notes.append("no record holds text: the tokenizer was not used")
        return [*notes, *([NOTES[form]] if form in NOTES else [])]


def _gathered(files: list[str], asked: _Asked, bad: Bad, progress: Progress | None) -> Requests:
    columns, readers, form = Columns(), dict[str, Reader](), asked.form
    for file, shown in zip(files, _shares(files, progress), strict=True):
        for where, record in records_of(file, bad, shown, form=asked.form):
            try:
                form = asked.form or known_as(record, form)
                if form not in readers:
                    readers[form] = reader_of(form, file, asked.text)
                scope = columns.blocks if form == "weka" else 0  # ids local to a record
                for row in [*readers[form](record, asked.block_size(form))]:  # all of a record, or none
                    columns.add(row, scope)
            except KvtallyError as error:
                bad.met(error.at(where))
            except RecursionError:
                bad.met(InputError("JSON nested too deep, expected a request", where=where))
    notes = asked.notes(form, bad)
    if not columns.time and notes:
        raise InputError(f"no requests, expected at least one ({notes[0]})")
    return columns.requests(notes, sides=form == "weka")


def _shares(files: list[str], progress: Progress | None) -> Iterator[Progress | None]:
    """For each file what to call with its progress, so that what is called sees that of all files together."""
    sizes = [size_of(file) for file in files]
    whole = sum(sizes) if all(sizes) else 0
    for n, size in enumerate(sizes):
        before = sum(sizes[:n])

        def show(file: str, done: int, of: int, before: int = before, size: int = size) -> None:
            if progress:
                progress(file, before + (size * done // of if of else 0), whole)

        yield show if progress else None


def records_of(
    file: str, bad: Bad, progress: Progress | None, *, form: str | None = None
) -> Iterator[tuple[str, Record]]:
    """(where, record) of a file, whatever it is written in; a CSV is refused with the reason."""
    if head(file) == canonical.MAGIC:
        return read_parquet.rows(file, progress)
    bare = bare_name(file)
    if bare.endswith((".csv", ".tsv")):
        columns = next(lines(file, bad), ("", b""))[1].decode(errors="replace").strip()
        if any(name in columns for name in LENGTHS_ONLY):
            raise InputError(f"columns {columns:.80}: {REFUSED_LENGTHS}", where=file)
        raise InputError(f"a table with columns {columns:.80}, expected JSON lines or Parquet", where=file)
    log = form == "sglang" or (form is None and bare.endswith(".log"))
    return records(file, bad, progress, plain=read_sglang.LINE if log else None)


def known_as(record: Record, before: str | None = None) -> str:
    """The format of a record, from the fields it has; `before` where it is a line of a log without a request."""
    names = set(record)
    body = record.get("body")
    said = names | (set(body) if isinstance(body, dict) else set())
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("ragpulse", lambda: isinstance(record.get("hash_ids"), dict)),
        ("weka", lambda: {"requests", "block_size"} <= names),
        ("bailian", lambda: {"hash_ids", "chat_id"} <= names),
        ("mooncake", lambda: "hash_ids" in names),
        ("lmcache", lambda: "chunk_hashes" in names),
        ("tokens", lambda: any(name in names for name in read_text.TOKENS)),
        ("sglang", lambda: read_sglang.LINE in names or str(record.get("event")).startswith("request.")),
        ("otel", lambda: read_spans.is_span(record)),
        ("claude-code", lambda: read_claude_code.is_claude_code(record)),
        ("langfuse", lambda: read_langfuse.is_langfuse(record)),
        ("chat", lambda: any(name in said for name in read_text.SAID)),
    )
    for form, fits in tests:
        if fits():
            return form
    if before in LOGS:
        return str(before)  # summaries, spans of other kinds
    raise _unknown(names)


def _unknown(names: set[str]) -> InputError:
    """Why a record with these fields cannot be used."""
    shown = ", ".join(f"`{name}`" for name in sorted(names)[:8])
    if "events" in names or {"block_hashes", "parent_block_hash"} & names:
        return InputError("KV events tell what was stored and removed, not what was asked for, expected requests")
    if any(name in names for name in LENGTHS_ONLY):
        return InputError(f"fields {shown}: {REFUSED_LENGTHS}")
    return InputError(
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
        "otel": text.through(read_spans.calls),
        "langfuse": text.through(read_langfuse.calls),
        "sglang": text.through(read_sglang.calls),
        "claude-code": read_claude_code.ClaudeCode(text),
    }
    return readers[form]
