"""What `replay` is asked of a trace, and its answer: the curve by capacity, and why it is what it is."""

from __future__ import annotations

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
from kvtally.traffic.routing import route
from kvtally.traffic.runs import Runs, runs
from kvtally.traffic.why import Why, why

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
    rules: tuple[str, ...] = ()
    capacities: tuple[int, ...] = ()


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
            "rules": [asdict(one) for one in self.ruled],
            "by": q.by,
            "parts": [asdict(part) for part in self.parts],
            "notes": list(self.notes),
        }


def answer(traces: tuple[str, ...], requests: Requests, question: Question) -> ReplayAnswer:
    """The answer for requests that were read."""
    domains = None if question.replicas == 1 else route(requests, question.replicas, question.route)
    table = runs(requests, domains=domains)
    curve = reuse(table, ttl=question.ttl, min_prefix=question.min_prefix)
    return ReplayAnswer(
        traces=traces,
        question=question,
        sessions=len(requests.names["session"]),
        seconds=float(requests.time[-1] - requests.time[0]),
        reuse=curve,
        table=table,
        points=_points(table, curve, question),
        why=why(table),
        parts=_parts(table, question) if question.by else (),
        ruled=ruled(requests, question.rules, question.capacities),
    )


def _points(table: Runs, curve: Reuse, question: Question) -> tuple[Point, ...]:
    blocks = [curve.blocks_for(Fraction(share, 100)) for share in SHARES]
    priced: tuple[Price | None, ...] = (None,) * len(blocks)
    if question.decoder is not None:
        priced = prices(
            question.decoder, table, blocks, dtype=question.dtype, ttl=question.ttl, min_prefix=question.min_prefix
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
