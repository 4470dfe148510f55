"""Logs that carry tokens or messages: token ids, chat logs and batches, LiteLLM, OpenTelemetry gen_ai spans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, MissingExtraError, UnreadableError
from kvtally.traffic.chain import TokenChain
from kvtally.traffic.rows import Row, ids, integer, text

Record = dict[str, Any]
BLOCK = 16  # tokens of a block where none is asked for
TOKENS = ("token_ids", "input_ids", "prompt_token_ids")
TIMES = ("timestamp", "startTime", "start_time", "created", "created_at", "time")
NOTE = "messages are joined as role, newline, content: what a chat template adds around them is not counted"
SPAN_TIMES = ("startTimeUnixNano", "start_time_unix_nano")


def when(record: Record) -> float | None:
    """Seconds since the epoch, from a number (seconds, or milliseconds where it is that large) or ISO 8601 text."""
    value = next((record[name] for name in TIMES if record.get(name) is not None), None)
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            return datetime.fromisoformat(str(value)).timestamp()
        except ValueError:
            raise InputError(f"the time is {value!r:.60}, expected seconds or ISO 8601") from None
    if not isfinite(number):
        raise InputError(f"the time is {value!r:.60}, expected seconds or ISO 8601")
    return number / 1000 if number > 1e11 else number


@dataclass(slots=True)
class Text:
    """Reads records of tokens or messages; text is tokenised once per distinct message, then chained.

    Messages are joined as role, newline, content, newline: what a chat template adds around them is not counted.
    """

    tokenizer_file: str | None = None
    chain: TokenChain | None = None
    tokenizer: Any = None
    tokenised: dict[str, list[int]] = field(default_factory=dict)

    def tokens(self, record: Record, block_size: int | None) -> Iterator[Row]:
        """{token_ids (input_ids, prompt_token_ids), timestamp, output_length, session_id, model}."""
        name = next(name for name in TOKENS if name in record)
        yield self._row(record, ids(record, name), block_size)

    def chat(self, record: Record, block_size: int | None) -> Iterator[Row]:
        """{messages, system, tools, model}, at the top or under `body`; LiteLLM's payload is one of them."""
        body = record.get("body")
        asked = {**record, **(body if isinstance(body, dict) else {})}
        pieces = [json.dumps(asked[name]) for name in ("tools", "system") if asked.get(name)]
        yield self._row(asked, self._tokenised(pieces + _messages(asked.get("messages"))), block_size)

    def spans(self, record: Record, block_size: int | None) -> Iterator[Row]:
        """One span with `attributes`, or an export (`resourceSpans`) of many; those without messages are left out."""
        for span in _spans(record):
            values = _attributes(span.get("attributes"))
            if "gen_ai.input.messages" not in values:
                continue
            pieces = [str(values[n]) for n in ("gen_ai.tool.definitions", "gen_ai.system_instructions") if n in values]
            started = next((int(span[name]) / 1e9 for name in SPAN_TIMES if span.get(name)), None)
            flat = {
                "timestamp": started if started is not None else when(span),
                "session_id": values.get("gen_ai.conversation.id"),
                "model": values.get("gen_ai.request.model"),
                "completion_tokens": values.get("gen_ai.usage.output_tokens"),
            }
            messages = _messages(_parsed(values["gen_ai.input.messages"]))
            yield self._row(flat, self._tokenised(pieces + messages), block_size)

    def _row(self, record: Record, tokens: list[int], block_size: int | None) -> Row:
        self.chain = self.chain or TokenChain(block_size=block_size or BLOCK)
        try:
            path = self.chain.path(tokens)
        except (OverflowError, TypeError):
            raise InputError("a token id is negative or too large, expected 64-bit integers") from None
        usage = record.get("usage")
        made = {**record, **(usage if isinstance(usage, dict) else {})}
        out = next((n for n in ("output_length", "completion_tokens", "output_tokens") if made.get(n) is not None), "")
        return Row(
            firsts=path,
            block_size=self.chain.block_size,
            input_tokens=len(tokens),
            output_tokens=int(made[out]) if out in made and str(made[out]).isdigit() else integer(made, out, 0),
            time=when(record),
            session=text(record, "session_id", "conversation_id", "trace_id"),
            model=text(record, "model"),
            tenant=text(record, "end_user", "user", "tenant"),
        )

    def _tokenised(self, pieces: list[str]) -> list[int]:
        if self.tokenizer is None:
            self.tokenizer = _tokenizer(self.tokenizer_file)
        tokens: list[int] = []
        for piece in pieces:
            if piece not in self.tokenised:
                self.tokenised[piece] = self.tokenizer.encode(piece, add_special_tokens=False).ids
            tokens += self.tokenised[piece]
        return tokens


def _messages(messages: object) -> list[str]:
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise InputError(f"`messages` is {messages!r:.60}, expected a list of messages")
    return [f"{one.get('role', '')}\n{_content(one)}\n" for one in messages]


def _content(message: Record) -> str:
    """The content as text; what is not plain text is written as JSON, keys in order, so that equal stays equal."""
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "cache_control")}
    content = message.get("content", "")
    said = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    return said + (json.dumps(rest, sort_keys=True) if rest else "")


def _tokenizer(file: str | None) -> Any:
    if file is None:
        raise InputError(
            "the trace holds text and no tokenizer is named, expected a tokenizer.json",
            hint="name the model's own with --tokenizer FILE",
        )
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("text needs the package tokenizers", hint="pip install tokenizers") from None
    path = Path(file) / "tokenizer.json" if Path(file).is_dir() else Path(file)
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except Exception as error:  # the package raises bare Exception for a file that is no tokenizer
        raise InputError(f"is no tokenizer ({str(error)[:60]})", where=str(path)) from None


def _parsed(messages: object) -> object:
    if not isinstance(messages, str):
        return messages
    try:
        return json.loads(messages)
    except ValueError:
        raise InputError(f"`gen_ai.input.messages` is {messages!r:.60}, expected JSON") from None


def _spans(record: Record) -> Iterator[Record]:
    if "resourceSpans" not in record:
        yield record
        return
    try:
        yield from [
            s for resource in record["resourceSpans"] for scope in resource["scopeSpans"] for s in scope["spans"]
        ]
    except (KeyError, TypeError):
        raise InputError("`resourceSpans` without `scopeSpans` and `spans` in it, expected an OTLP export") from None


def _attributes(found: object) -> Record:
    """Attributes as a dict, from OTLP's list of {key, value: {stringValue: …}} or as they are."""
    if isinstance(found, list):
        try:
            return {one["key"]: next(iter(one["value"].values()), None) for one in found}
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"`attributes` is {found!r:.60}, expected keys and values") from None
    return found if isinstance(found, dict) else {}
