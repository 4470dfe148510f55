"""Claude Code session logs: by their messages where a tokenizer is named, else by their usage counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvtally.core.errors import InputError
from kvtally.traffic.read_text import Text
from kvtally.traffic.rows import Row, integer, text
from kvtally.traffic.times import when

Record = dict[str, Any]
BLOCK = 64
READ, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
KINDS = ("summary", "file-history-snapshot", "queue-operation", "progress")  # lines that may come before a request
NOTE = (
    "Claude Code logs carry token counts, not tokens: a prompt that grew is taken to extend the session's previous "
    "one, a prompt that shrank to share only what was reported as read from the cache; sessions share nothing"
)
NOTE_TEXT = (
    "Claude Code logs hold neither the system prompt nor the tools: prompts are taken without them; messages are "
    "joined as role, newline, content"
)


def is_claude_code(record: Record) -> bool:
    """Whether a record looks like a line of a session log, request or not."""
    return {"uuid", "sessionId"} <= set(record) or (record.get("type") in KINDS and "messages" not in record)


@dataclass(slots=True)
class ClaudeCode:
    """One request for each `assistant` message with usage; lines of the same request are one.

    With a tokenizer in `words`, a prompt is the messages from the first to the one answered, along `parentUuid`.
    """

    words: Text
    paths: dict[str, list[int]] = field(default_factory=dict)  # session or sidechain to the last prompt's blocks
    messages: dict[str, tuple[str, Record]] = field(default_factory=dict)  # uuid to its parent's, and the message
    seen: set[str] = field(default_factory=set)
    blocks: int = 0

    def __call__(self, record: Record, block_size: int | None) -> Iterator[Row]:
        message = record.get("message")
        if self.words.tokenizer_file is not None and record.get("uuid"):
            said = message if isinstance(message, dict) else {}
            plain = {name: said[name] for name in ("role", "content") if name in said}
            self.messages[text(record, "uuid")] = (text(record, "parentUuid"), plain)
        if record.get("type") != "assistant" or not isinstance(message, dict) or message.get("usage") is None:
            return
        usage = message["usage"]
        if not isinstance(usage, dict):
            raise InputError(f"`usage` is {usage!r:.60}, expected token counts")
        name = text(record, "requestId") or text(message, "id") or text(record, "uuid")
        if not name:
            raise InputError("a request without `requestId`, `id` or `uuid`, expected one of them")
        if name in self.seen:
            return
        self.seen.add(name)
        session = text(record, "sessionId")
        if record.get("isSidechain"):
            session += f"/{text(record, 'agentId') or 'sidechain'}"
        if self.words.tokenizer_file is not None:
            asked = {"messages": self._chain(text(record, "parentUuid")), "timestamp": when(record), "usage": usage}
            yield from self.words.chat({**asked, "session_id": session, "model": text(message, "model")}, block_size)
            return
        size = block_size or BLOCK
        read, written = integer(usage, READ, 0), integer(usage, WRITTEN, 0)
        tokens = integer(usage, "input_tokens") + read + written
        yield Row(
            firsts=self._path(session, tokens // size, read // size),
            block_size=size,
            input_tokens=tokens,
            output_tokens=integer(usage, "output_tokens", 0),
            time=when(record),
            session=session,
            model=text(message, "model"),
        )

    def _chain(self, last: str) -> list[Record]:
        """The messages up to `last`, the first one first."""
        found: list[Record] = []
        for _ in range(len(self.messages)):
            if last not in self.messages:
                break
            last, message = self.messages[last]
            found += [message] if message else []
        else:
            if last in self.messages:
                raise InputError("`parentUuid` goes round in a circle, expected a chain")
        return found[::-1]

    def _path(self, session: str, blocks: int, read: int) -> list[int]:
        previous = self.paths.get(session, [])
        kept = previous if blocks >= len(previous) else previous[: min(read, blocks)]
        fresh = range(self.blocks, self.blocks + blocks - len(kept))
        self.blocks += len(fresh)
        self.paths[session] = [*kept, *fresh]
        return self.paths[session]
