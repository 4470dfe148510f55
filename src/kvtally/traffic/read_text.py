"""Requests that carry tokens or messages, cut into blocks: token ids, chat logs and batches, what exports become."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, MissingExtraError, UnreadableError
from kvtally.traffic.chain import TokenChain
from kvtally.traffic.rows import Row, ids, integer, text
from kvtally.traffic.times import when

Record = dict[str, Any]
Calls = Callable[[Record, Counter[str]], Iterator[Record]]  # an export's record to chats; what is left out is counted
BLOCK = 16  # tokens of a block where none is asked for
TOKENS = ("token_ids", "input_ids", "prompt_token_ids")
SAID = ("messages", "input", "prompt")
FIRST = ("tools", "system", "instructions")  # before the messages, in this order
OUT = ("output_length", "completion_tokens", "output_tokens")
NOTE = "messages are joined as role, newline, content: what a chat template adds around them is not counted"
DIGITS = 19  # of an integer that is written as text, at most
REDACTED = "redacted-by-litellm"


@dataclass(slots=True)
class Text:
    """Reads records of tokens or messages; text is tokenised once per distinct message, then chained.

    Messages are joined as role, newline, content, newline: what a chat template adds around them is not counted.
    `left_out` counts what was no request, by the reason.
    """

    tokenizer_file: str | None = None
    chain: TokenChain | None = None
    tokenizer: Any = None
    tokenised: dict[str, array[int]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def tokens(self, record: Record, block_size: int | None) -> Iterator[Row]:
        """{token_ids (input_ids, prompt_token_ids), timestamp, output_length, session_id, model}."""
        name = next((name for name in TOKENS if name in record), TOKENS[0])
        yield self._row(record, ids(record, name), block_size)

    def chat(self, record: Record, block_size: int | None) -> Iterator[Row]:
        """{messages, input or prompt; tools, system, model}, at the top or under `body`; LiteLLM's payload is one."""
        if record.get("cache_hit") is True:
            self.left_out["requests that LiteLLM answered from its cache of responses"] += 1
            return
        body = record.get("body")
        asked = {**record, **(body if isinstance(body, dict) else {})}
        yield self._row(asked, self._tokenised(_pieces(asked)), block_size)

    def through(self, calls: Calls) -> Callable[[Record, int | None], Iterator[Row]]:
        """A reader of records that `calls` turns into token ids or chats."""

        def read(record: Record, block_size: int | None) -> Iterator[Row]:
            for call in calls(record, self.left_out):
                yield from (self.tokens if TOKENS[0] in call else self.chat)(call, block_size)

        return read

    def _row(self, record: Record, tokens: list[int] | array[int], block_size: int | None) -> Row:
        self.chain = self.chain or TokenChain(block_size=block_size or BLOCK)
        try:
            path = self.chain.path(tokens)
        except (OverflowError, TypeError):
            raise InputError("a token id is negative or too large, expected 64-bit integers") from None
        return Row(
            firsts=path,
            block_size=self.chain.block_size,
            input_tokens=len(tokens),
            output_tokens=_made(record),
            time=when(record),
            session=text(record, "session_id", "sessionId", "conversation_id", "trace_id"),
            model=text(record, "model"),
            tenant=text(record, "end_user", "user", "userId", "tenant"),
        )

    def _tokenised(self, pieces: list[str]) -> array[int]:
        if self.tokenizer is None:
            self.tokenizer = _tokenizer(self.tokenizer_file)
        tokens = array("Q")
        for piece in pieces:
            if piece not in self.tokenised:
                self.tokenised[piece] = self._encoded(piece)
            tokens += self.tokenised[piece]
        return tokens

    def _encoded(self, piece: str) -> array[int]:
        try:
            piece.encode()
        except UnicodeEncodeError:
            raise InputError(f"text with half a character in it (a lone surrogate): {piece!a:.60}") from None
        return array("Q", self.tokenizer.encode(piece, add_special_tokens=False).ids)


def _made(record: Record) -> int:
    """Tokens of the answer, at the top or under `usage`; OTLP writes integers as text."""
    usage = record.get("usage")
    made = {**record, **(usage if isinstance(usage, dict) else {})}
    out = next((n for n in OUT if made.get(n) is not None), OUT[0])
    written = made.get(out)
    if isinstance(written, str) and written.isdecimal() and len(written) <= DIGITS:
        made[out] = int(written)
    return integer(made, out, 0)


def _pieces(asked: Record) -> list[str]:
    """The texts of a prompt, root first: tools, system, messages (or the one text it is)."""
    if asked.get("previous_response_id"):
        raise InputError(
            "`previous_response_id` stands for turns that only the server has, expected the whole prompt in `input`"
        )
    before = [_plain(asked[name]) for name in FIRST if asked.get(name)]
    name = next((name for name in SAID if asked.get(name) is not None), SAID[0])
    said = unpacked(asked.get(name), name)
    if isinstance(said, str):
        return [*before, said]
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise InputError(f"`{name}` is {said!r:.60}, expected a list of messages")
    return [*before, *map(_message, said)]


def unpacked(said: object, name: str) -> object:
    """Messages that an export wrote as JSON text; plain text stays text, and redacted text is an InputError."""
    if isinstance(said, str) and said.lstrip()[:1] in ("[", "{"):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            return said
    messages = said if isinstance(said, list) else []
    if REDACTED in (said, *(one.get("content") for one in messages if isinstance(one, dict))):
        raise InputError(
            f"`{name}` is redacted, so that all prompts look alike, expected what was sent",
            hint="LiteLLM logs messages with turn_off_message_logging: false",
        )
    return said


def _message(message: Record) -> str:
    rest = bare({key: value for key, value in message.items() if key not in ("role", "content")})
    return f"{message.get('role', '')}\n{_plain(message.get('content'))}{_plain(rest) if rest else ''}\n"


def _plain(content: object) -> str:
    """Content as text: blocks of text joined, all else as JSON with keys in order, so that equal stays equal.

    >>> _plain([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]) == _plain("hi")
    True
    """
    content = bare(content)
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(one, dict) and set(one) == {"type", "text"} for one in content):
        return "".join(str(one["text"]) for one in content)
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)


def bare(value: Any) -> Any:
    """The value without cache breakpoints, which move from turn to turn, and without fields that are null."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if key != "cache_control" and one is not None}
    return [bare(one) for one in value] if isinstance(value, list) else value


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
