"""Claude Code session logs, by their usage counts: there is no public tokenizer, and system and tools are absent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvtally.core.errors import InputError
from kvtally.traffic.read_text import when
from kvtally.traffic.rows import Row, integer, text

BLOCK = 64
READ, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
NOTE = (
    "Claude Code logs carry token counts, not tokens: a prompt that grew is taken to extend the session's previous "
    "one, a prompt that shrank to share only what was reported as read from the cache; sessions share nothing"
)


@dataclass(slots=True)
class ClaudeCode:
    """One request for each `assistant` message with usage; lines of the same request are one."""

    paths: dict[str, list[int]] = field(default_factory=dict)  # session (and sidechain) to the last prompt's blocks
    seen: set[str] = field(default_factory=set)
    blocks: int = 0

    def __call__(self, record: dict[str, Any], block_size: int | None) -> Iterator[Row]:
        message = record.get("message")
        if record.get("type") != "assistant" or not isinstance(message, dict) or message.get("usage") is None:
            return
        usage = message["usage"]
        if not isinstance(usage, dict):
            raise InputError(f"`usage` is {usage!r:.60}, expected token counts")
        name = text(record, "requestId") or text(message, "id") or text(record, "uuid")
        if name in self.seen:
            return
        self.seen.add(name)
        size = block_size or BLOCK
        read, written = integer(usage, READ, 0), integer(usage, WRITTEN, 0)
        tokens = integer(usage, "input_tokens") + read + written
        session = text(record, "sessionId") + ("/sidechain" if record.get("isSidechain") else "")
        yield Row(
            firsts=self._path(session, tokens // size, read // size),
            block_size=size,
            input_tokens=tokens,
            output_tokens=integer(usage, "output_tokens", 0),
            time=when(record),
            session=session,
            model=text(message, "model"),
        )

    def _path(self, session: str, blocks: int, read: int) -> list[int]:
        previous = self.paths.get(session, [])
        kept = previous if blocks >= len(previous) else previous[: min(read, blocks)]
        fresh = range(self.blocks, self.blocks + blocks - len(kept))
        self.blocks += len(fresh)
        self.paths[session] = [*kept, *fresh]
        return self.paths[session]
