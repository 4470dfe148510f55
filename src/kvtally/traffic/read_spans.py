"""OpenTelemetry spans of model calls as chats: gen_ai attributes, OpenInference, in OTLP, one a line, or columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from kvtally.core.errors import InputError
from kvtally.traffic.read_text import unpacked
from kvtally.traffic.times import finite

Record = dict[str, Any]
COLUMN = "attributes."  # before an attribute's name, where spans are rows of a table
NANOSECONDS = ("startTimeUnixNano", "start_time_unix_nano")
CALLED = ("gen_ai.request.model", "llm.model_name", "gen_ai.usage.input_tokens", "llm.token_count.prompt")
MESSAGES, INDEXED = "gen_ai.input.messages", ("llm.input_messages", "gen_ai.prompt")
FIELDS = {  # of a chat, and where a span has it
    "session_id": ("gen_ai.conversation.id", "session.id"),
    "model": ("gen_ai.request.model", "llm.model_name"),
    "completion_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "user": ("enduser.id", "user.id"),
    "system": ("gen_ai.system_instructions",),
}
LEFT = "calls of a model without their messages, which tracing leaves out until it is told to capture content"


def is_span(record: Record) -> bool:
    """Whether a record looks like a span, or an export of spans."""
    if "resourceSpans" in record or any(name.startswith(COLUMN) for name in record):
        return True
    attributes = record.get("attributes")
    if not isinstance(attributes, dict | list):
        return False
    names = {"context", "span_id", "spanId", "start_time", "trace_id", "traceId", *NANOSECONDS}
    return bool(names & set(record)) or "gen_ai." in str(attributes)


def calls(record: Record, left_out: Counter[str]) -> Iterator[Record]:
    """A chat for each span with messages; spans that call no model are no requests."""
    for span in _spans(record):
        values = _attributes(span)
        messages = _messages(values)
        if messages is None:
            left_out[LEFT] += any(name in values for name in CALLED)
            continue
        chat = {name: next((values[n] for n in names if n in values), None) for name, names in FIELDS.items()}
        chat["tools"] = values.get("gen_ai.tool.definitions") or _indexed(values, "llm.tools")
        chat["messages"] = messages
        named = next((name for name in NANOSECONDS if span.get(name)), None)
        if named is None:
            yield {**{name: span[name] for name in ("timestamp", "startTime", "start_time") if name in span}, **chat}
        elif (nanoseconds := finite(span[named])) >= 0:
            yield {"timestamp": nanoseconds / 1e9, **chat}
        else:
            raise InputError(f"`{named}` is {span[named]!r:.60}, expected nanoseconds since the epoch")


def _messages(values: Record) -> object:
    if MESSAGES in values:
        found = unpacked(values[MESSAGES], MESSAGES)
        if not isinstance(found, list):
            raise InputError(f"`{MESSAGES}` is {values[MESSAGES]!r:.60}, expected JSON")
        return found
    return next((found for prefix in INDEXED if (found := _indexed(values, prefix))), None)


def _indexed(values: Record, prefix: str) -> list[Record] | None:
    """Messages written as `prefix.0.message.role`, `prefix.0.message.content`, …, in order."""
    groups: defaultdict[tuple[int, str], Record] = defaultdict(dict)  # longer numbers are larger
    for name, value in values.items():
        number, _, rest = name.removeprefix(f"{prefix}.").partition(".")
        if name.startswith(f"{prefix}.") and number.isdecimal():
            groups[len(number), number][rest.removeprefix("message.")] = value
    return [groups[n] for n in sorted(groups)] or None


def _spans(record: Record) -> Iterator[Record]:
    if "resourceSpans" not in record:
        yield record
        return
    try:
        spans = [s for resource in record["resourceSpans"] for scope in resource["scopeSpans"] for s in scope["spans"]]
    except (KeyError, TypeError):
        raise InputError("`resourceSpans` without `scopeSpans` and `spans` in it, expected an OTLP export") from None
    for span in spans:
        if not isinstance(span, dict):
            raise InputError(f"`spans` holds {span!r:.60}, expected JSON objects")
        yield span


def _attributes(span: Record) -> Record:
    """Attributes by name, from OTLP's list of keys and values, from a dict, or from columns; nested ones joined."""
    found = span.get("attributes")
    columns = {name.removeprefix(COLUMN): one for name, one in span.items() if name.startswith(COLUMN)}
    if isinstance(found, list):
        try:
            found = {str(one["key"]): _otlp(one["value"]) for one in found}
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"`attributes` is {found!r:.60}, expected keys and values") from None
    whole = {**columns, **(found if isinstance(found, dict) else {})}
    return {**dict(_flat("", whole)), **whole}


def _otlp(value: Any) -> object:
    """OTLP's {stringValue: …}, {arrayValue: {values: […]}} and {kvlistValue: {values: […]}} as they are meant."""
    kind: str
    inner: Any
    kind, inner = next(iter(value.items()), ("", None))
    if kind == "arrayValue":
        return [_otlp(one) for one in inner.get("values", [])]
    if kind == "kvlistValue":
        return {one["key"]: _otlp(one["value"]) for one in inner.get("values", [])}
    return inner


def _flat(prefix: str, value: object) -> Iterator[tuple[str, object]]:
    """(dotted name, value) of everything nested."""
    if not isinstance(value, dict | list):
        yield prefix, value
        return
    for name, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _flat(f"{prefix}.{name}" if prefix else str(name), one)
