"""Times as traces write them, in seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite, isnan, nan
from typing import Any

from kvtally.core.errors import InputError

TIMES = ("timestamp", "startTime", "start_time", "created", "created_at", "time")
MILLISECONDS = 1e11  # seconds since the epoch stay below it for 3,000 years, milliseconds are above it since 1973


def seconds(record: dict[str, Any], name: str = "timestamp", unit: float = 1.0) -> float | None:
    """The field in seconds; None where there is none. A number of `unit` seconds, also as text, or a date of Parquet.

    >>> seconds({"timestamp": "1500"}, unit=1e-3)
    1.5
    """
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, datetime):
        return _since_epoch(value)
    found = finite(value) * unit
    if isnan(found):
        raise InputError(f"`{name}` is {value!r:.60}, expected a number")
    return found


def when(record: dict[str, Any]) -> float | None:
    """Seconds since the epoch, from a number (seconds, or milliseconds where it is that large) or ISO 8601 text.

    >>> when({"timestamp": 1_700_000_000_500}), when({"startTime": "1970-01-01T00:01:00"})
    (1700000000.5, 60.0)
    """
    value = next((record[name] for name in TIMES if record.get(name) is not None), None)
    if value is None:
        return None
    found = _since_epoch(value) if isinstance(value, datetime) else finite(value)
    if not isnan(found):
        return found / 1000 if found > MILLISECONDS else found
    try:
        return _since_epoch(datetime.fromisoformat(str(value)))
    except ValueError:
        raise InputError(f"the time is {value!r:.60}, expected seconds or ISO 8601") from None


def finite(value: Any) -> float:
    """A finite number, also from text; nan of all else: true is none, and 10^400 is too large."""
    try:
        found = nan if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError, ValueError):
        return nan
    return found if isfinite(found) else nan


def _since_epoch(moment: datetime) -> float:
    """Text without a zone is UTC: only differences count, and a clock put forward must not count as an hour."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
