"""Langfuse observations as chats: one a line, a list, a trace's download, a page of its API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kvtally.core.errors import InputError
from kvtally.traffic.read_text import unpacked

Record = dict[str, Any]
LEFT = "generations without an input"


def is_langfuse(record: Record) -> bool:
    """Whether a record looks like an observation, or holds some."""
    listed = record.get("observations", record.get("data"))
    if isinstance(listed, list) and listed:
        record = listed[0] if isinstance(listed[0], dict) else {}
    return ("traceId" in record or "trace_id" in record) and "type" in record and "input" in record


def calls(record: Record, left_out: Counter[str]) -> Iterator[Record]:
    """A chat for each observation of type GENERATION; spans and events call no model."""
    listed = record.get("observations", record.get("data", [record]))
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InputError(f"`observations` is {listed!r:.60}, expected a list of observations")
    for one in listed:
        if str(one.get("type")).upper() != "GENERATION":
            continue
        said = unpacked(one.get("input"), "input")
        if said in (None, "", [], {}):
            left_out[LEFT] += 1
            continue
        usage = one.get("usageDetails") or one.get("usage_details") or one.get("usage") or {}
        yield {
            "timestamp": one.get("startTime", one.get("start_time")),
            "session_id": one.get("sessionId") or one.get("session_id") or one.get("traceId", one.get("trace_id")),
            "model": one.get("model") or one.get("providedModelName"),
            "user": one.get("userId", one.get("user_id")),
            "completion_tokens": usage.get("output") if isinstance(usage, dict) else None,
            **(said if isinstance(said, dict) else {"input": said}),
        }
