"""What `replay` is asked of a trace, and its answer: the curve by capacity, and why it is what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from kvtally.core.decoder import Decoder
from kvtally.core.reuse import Reuse
from kvtally.frontends.replay_rules import Ruled, ruled
from kvtally.traffic.prices import Price, prices
from kvtally.traffic.replay import reuse
from kvtally.traffic.requests import Requests
from kvtally.traffic.routing import domains
from kvtally.traffic.runs import Ints, Runs, runs
from kvtally.traffic.why import Inside, Why, inside_of, why

Told = Callable[[str, int, int], None]  # what is counted, steps done, of how many
SHARES = (50, 75, 90, 95, 99, 100)  # per cent of the hits that an unlimited cache has


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: whose cache, its rules, and what to split by."""

    decoder: Decoder | None = None
    dtype: str = "bf16"
    ttl: float | None = None
    min_prefix: int = 0
    by: str | None = None
    replicas: int = 1
    route: str = "sticky"
    cache_per: str | None = None
    rules: tuple[str, ...] = ()
    capacities: tuple[int, ...] = ()

    def domains(self, requests: Requests) -> Ints | None:
        """Which cache each request goes to; None where there is one."""
        return domains(requests, per=self.cache_per, replicas=self.replicas, how=self.route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The smallest capacity that has `share` per cent of the hits possible; its price where a model is named."""

    share: int
    blocks: int
    hits: int
    states: int
    price: Price | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A session, model or tenant: its requests, its block accesses, and those that an unlimited cache hits."""

    name: str
    requests: int
    accesses: int
    hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """Everything that is said of a trace: the curve, its points, why, and the parts asked for."""

    traces: tuple[str, ...]
    question: Question
    sessions: int
    seconds: float
    reuse: Reuse
    table: Runs
    points: tuple[Point, ...]
    why: Why
    parts: tuple[Part, ...]
    ruled: tuple[Ruled, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the reader did."""
        return self.table.requests.notes

    def at(self, share: int) -> Point:
        """The smallest capacity that has `share` per cent of the hits possible."""
        return next(point for point in self.points if point.share == share)

    def to_dict(self) -> dict[str, Any]:
        """All of it, exact, for JSON; of the curve, the capacities of each per cent."""
        q = self.question
        return {
            "traces": list(self.traces),
            "sessions": self.sessions,
            "seconds": self.seconds,
            "model": q.decoder.name if q.decoder else None,
            "dtype": q.dtype if q.decoder else None,
            "reuse": self.reuse.to_dict(),
            "prices": [{"share": p.share, **p.price.to_dict()} for p in self.points if p.price],
            "why": self.why.to_dict(),
            "replicas": q.replicas,
            "route": q.route if q.replicas > 1 else None,
            "cache_per": q.cache_per,
            "rules": [asdict(one) for one in self.ruled],
            "by": q.by,
            "parts": [asdict(part) for part in self.parts],
            "notes": list(self.notes),
        }


def answer(traces: tuple[str, ...], requests: Requests, question: Question, told: Told | None = None) -> ReplayAnswer:
    """The answer for requests that were read; `told` is called before each step."""
    steps = _Steps(told, question)
    steps.next("hits at every capacity")
    of = question.domains(requests)
    table = runs(requests, domains=of)
    steps.next("what breaks reuse")
    return _answered(traces, table, inside_of(requests, of), question, steps)


def answer_on_ray(traces: tuple[str, ...], question: Question, block_size: int | None) -> ReplayAnswer:
    """The answer for converted traces, replayed on a Ray cluster."""
    from kvtally.traffic.cluster import replay_on_ray

    table, inside = replay_on_ray(traces, domains=question.domains, block_size=block_size)
    return _answered(traces, table, inside, question, _Steps(None, question))


def _answered(traces: tuple[str, ...], table: Runs, inside: Inside, question: Question, steps: _Steps) -> ReplayAnswer:
    requests = table.requests
    curve = reuse(table, ttl=question.ttl, min_prefix=question.min_prefix)
    return ReplayAnswer(
        traces=traces,
        question=question,
        sessions=len(requests.names["session"]),
        seconds=float(requests.time[-1] - requests.time[0]),
        reuse=curve,
        table=table,
        points=_points(table, curve, question, steps),
        why=why(table, inside),
        parts=_parts(table, question) if question.by else (),
        ruled=ruled(requests, question.rules, question.capacities, steps.next),
    )


class _Steps:
    """Tells what is done next, and how much of all that is to do is done."""

    def __init__(self, told: Told | None, question: Question) -> None:
        self.told, self.done = told, -1
        self.whole = 2 + len(SHARES) * (question.decoder is not None) + len(question.rules) * len(question.capacities)

    def next(self, name: str) -> None:
        self.done += 1
        if self.told:
            self.told(name, self.done, self.whole)

    def through(self, name: str, each: Iterable[int]) -> Iterator[int]:
        for one in each:
            self.next(name)
            yield one


def _points(table: Runs, curve: Reuse, question: Question, steps: _Steps) -> tuple[Point, ...]:
    blocks = [curve.blocks_for(Fraction(share, 100)) for share in SHARES]
    priced: tuple[Price | None, ...] = (None,) * len(blocks)
    if question.decoder is not None:
        priced = prices(
            question.decoder,
            table,
            steps.through("multiplications", blocks),
            dtype=question.dtype,
            ttl=question.ttl,
            min_prefix=question.min_prefix,
        )
    return tuple(
        Point(share=share, blocks=capacity, hits=curve.at(capacity), states=curve.states(capacity), price=price)
        for share, capacity, price in zip(SHARES, blocks, priced, strict=True)
    )


def _parts(table: Runs, question: Question) -> tuple[Part, ...]:
    """The trace by session, model or tenant, one cache for all: those that ask for most first."""
    requests, by = table.requests, str(question.by)
    of, names = getattr(requests, by), requests.names[by]
    found = table.hits(ttl=question.ttl, min_prefix=question.min_prefix)
    hits = np.bincount(of, weights=found, minlength=len(names))  # exact below 2^53
    asked = np.bincount(of, weights=np.diff(requests.offsets), minlength=len(names))
    many = np.bincount(of, minlength=len(names))
    parts = [
        Part(name=name or "(none)", requests=int(many[k]), accesses=int(asked[k]), hits=int(hits[k]))
        for k, name in enumerate(names)
    ]
    return tuple(sorted(parts, key=lambda part: -part.accesses))
