"""Rows that readers yield, and the columns they are gathered into."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np

from kvtally.core.errors import InputError
from kvtally.traffic.requests import Ids, Ints, Requests, picked, whole_number

RUNS = 1 << 12  # expanded at a time, so that ids exist once
MOST_TOKENS = 2**30  # of a request
SMALLEST_FOREIGN = 2**62  # ids from here on, and negative ones, are numbered anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request: its path as runs of consecutive ids (`counts` None: all of length 1)."""

    firsts: list[int]
    counts: list[int] | None = None
    block_size: int
    input_tokens: int
    output_tokens: int = 0
    time: float | None = None
    session: str = ""
    model: str = ""
    tenant: str = ""


def integer(record: dict[str, Any], name: str, default: int | None = None, *, least: int = 0) -> int:
    """The field as an integer; an InputError where it is missing (and has no default), too large or another thing."""
    value = record.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TOKENS:
        raise InputError(f"`{name}` is {value!r:.60}, expected an integer from {least} to {MOST_TOKENS:,}")
    return value


def ids(record: dict[str, Any], name: str) -> list[int]:
    """The field as a list of integers."""
    value = record.get(name)
    if not isinstance(value, list):
        raise InputError(f"`{name}` is {value!r:.60}, expected a list of integers")
    for one in value:
        if type(one) is not int:
            raise InputError(f"`{name}` holds {one!r:.60}, expected integers")
    return value


def text(record: dict[str, Any], *names: str) -> str:
    """The first of the fields that is there, as text; "" where none is."""
    for name in names:
        if record.get(name) not in (None, ""):
            return str(record[name])
    return ""


@dataclass(slots=True, kw_only=True)
class Columns:
    """Rows gathered column by column; `scope` is added to ids that are local to a file."""

    firsts: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    runs: array[int] = field(default_factory=lambda: array("q"))
    numbers: dict[str, array[int]] = field(
        default_factory=lambda: {n: array("q") for n in ("input", "output", "session", "model", "tenant")}
    )
    time: list[float | None] = field(default_factory=list)
    known: dict[str, dict[str, int]] = field(default_factory=lambda: {n: {} for n in ("session", "model", "tenant")})
    foreign: dict[tuple[int, int], int] = field(default_factory=dict)
    block_size: int | None = None
    blocks: int = 0  # one more than the largest id so far

    def add(self, row: Row, scope: int = 0) -> None:
        if self.block_size is None:
            self.block_size = row.block_size
        if row.block_size != self.block_size:
            raise InputError(
                f"blocks of {row.block_size:,} tokens after blocks of {self.block_size:,}, expected one size",
                hint="replay them one at a time",
            )
        firsts, counts = row.firsts, row.counts or [1] * len(row.firsts)
        end = scope + max(map(add, firsts, counts), default=0)
        if end > SMALLEST_FOREIGN or min(firsts, default=0) < 0:
            each = [first + k for first, count in zip(firsts, counts, strict=True) for k in range(count)]
            firsts, counts = [self._placed(i, scope) for i in each], [1] * len(each)
            end = max([scope, *firsts]) + 1
        elif scope:
            firsts = [i + scope for i in firsts]
        self.firsts.extend(firsts)
        self.counts.extend(counts)
        self.blocks = max(self.blocks, end)
        self.runs.append(len(firsts))
        self.time.append(row.time)
        self.numbers["input"].append(row.input_tokens)
        self.numbers["output"].append(row.output_tokens)
        for name, value in (("session", row.session), ("model", row.model), ("tenant", row.tenant)):
            self.numbers[name].append(self.known[name].setdefault(value, len(self.known[name])))

    def _placed(self, i: int, scope: int) -> int:
        """An id in the whole trace: a foreign one is numbered from -1 down, and is the same in its scope alone."""
        if 0 <= i < SMALLEST_FOREIGN - scope:
            return i + scope
        return -1 - self.foreign.setdefault((scope, i), len(self.foreign))

    def requests(self, notes: Iterable[str] = (), *, sides: bool = False) -> Requests:
        """The record, in order of time. `sides`: files run side by side, so that sorting needs no note."""
        if not self.time or self.block_size is None:
            raise InputError("no requests, expected at least one")
        notes = [*notes]
        time = self._times(notes)
        runs = np.array(self.runs)
        order = np.arange(len(time))
        if np.any(np.diff(time) < 0):
            late = int(np.count_nonzero(np.diff(time) < 0))
            order = np.argsort(time, kind="stable")
            if not sides:
                notes.append(f"timestamps out of order at {late:,} {'place' if late == 1 else 'places'}: sorted")
        starts = np.concatenate([[0], np.cumsum(runs)])
        chosen = picked(starts[:-1][order], runs[order])
        firsts, counts = np.array(self.firsts)[chosen], np.array(self.counts)[chosen]
        per_request = np.concatenate([[0], np.cumsum(counts)])
        offsets = per_request[np.concatenate([[0], np.cumsum(runs[order])])]
        columns = {name: np.array(values)[order] for name, values in self.numbers.items()}
        return Requests(
            offsets=offsets.astype(np.int64),
            ids=_dense(_expanded(firsts, counts)),
            time=time[order],
            input_tokens=columns.pop("input"),
            output_tokens=columns.pop("output"),
            block_size=self.block_size,
            names={name: tuple(values) for name, values in self.known.items()},
            notes=tuple(notes),
            **columns,
        )

    def _times(self, notes: list[str]) -> np.typing.NDArray[np.float64]:
        missing = self.time.count(None)
        if not missing:
            return np.array(self.time, dtype=np.float64)
        if missing < len(self.time):
            raise InputError(f"{missing:,} of {len(self.time):,} requests have no time, expected all or none to have")
        notes.append("no timestamps: requests are taken in order, a second apart; TTL figures mean nothing")
        return np.arange(len(self.time), dtype=np.float64)


def _expanded(firsts: Ints, counts: Ints) -> Ids:
    """All ids of the runs, expanded a piece at a time."""
    ends = np.cumsum(counts)
    kind = whole_number(int(max(-firsts.min(initial=0), (firsts + counts).max(initial=0))))
    whole = np.empty(int(ends[-1]) if len(ends) else 0, dtype=kind)
    for at in range(0, len(firsts), RUNS):
        some = slice(at, at + RUNS)
        low = int(ends[at] - counts[at])
        expanded = picked(firsts[some], counts[some])
        whole[low : low + len(expanded)] = expanded
    return whole


def _dense(whole: Ids) -> Ids:
    """Ids from 0 on; numbered anew where they are sparse or hashes."""
    if not len(whole) or (whole.min() >= 0 and whole.max() < 2 * len(whole) + 1024):
        return whole
    numbered: Ids = np.unique(whole, return_inverse=True)[1].astype(whole_number(len(whole)))
    return numbered
