"""What `size` is asked, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, KvtallyError, require_int
from kvtally.core.footprint import Footprint
from kvtally.core.passes import LONGEST
from kvtally.pure.size import Bytes, CacheTypes, cache_types, fits, held_bytes, longest, size
from kvtally.pure.size_terms import Product, products

HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one device: `total`, of which the share `used` is the engine's, `weights` taken off."""

    total: int
    used: Fraction = Fraction(9, 10)
    weights: int | None = None
    devices: int = 1

    def __post_init__(self) -> None:
        require_int("--memory", self.total, least=1)
        if not 0 < self.used <= 1:
            raise InputError(f"`--gpu-memory-utilization` is {float(self.used):g}, expected more than 0 and at most 1")
        if self.free <= 0:
            raise InputError(
                f"the weights take {self.share:,} bytes of the {int(self.total * self.used):,} that may be used, "
                "expected room for a cache",
                hint="use more devices (--tensor-parallel-size), smaller weights, or more memory",
            )

    @property
    def share(self) -> int:
        """Bytes of weights on each device: an equal share."""
        return -(-(self.weights or 0) // self.devices)

    @property
    def free(self) -> int:
        """Bytes for the cache."""
        return int(self.total * self.used) - self.share

    def to_dict(self) -> dict[str, Any]:
        return {
            "bytes": self.total,
            "utilization": float(self.used),
            "weights": self.weights,
            "weights_a_device": self.share,
            "free": self.free,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeQuestion:
    """A cache to be sized: `batch` requests of `tokens` tokens, in which types, on how many devices.

    `engines` are those asked what they would reserve; `alone`: one was named, and its refusal is an error.
    """

    decoder: Decoder
    tokens: int
    batch: int = 1
    dtype: str = "bf16"
    k_dtype: str | None = None
    v_dtype: str | None = None
    devices: int = 1
    block_size: int | None = None
    engines: tuple[str, ...] = ()
    alone: bool = False
    memory: Memory | None = None

    @property
    def types(self) -> CacheTypes:
        return cache_types(self.dtype, k_dtype=self.k_dtype, v_dtype=self.v_dtype)

    @property
    def named(self) -> dict[str, Any]:
        """The types and the number of devices, as `size` and engines take them."""
        given = {"dtype": self.dtype, "k_dtype": self.k_dtype, "v_dtype": self.v_dtype}
        return {**given, "tensor_parallel": self.devices}

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.decoder.name,
            "layers": len(self.decoder.layers),
            "tokens": self.tokens,
            "batch": self.batch,
            **self.types.to_dict(),
            "tensor_parallel_size": self.devices,
            "block_size": self.block_size,
            "memory": self.memory.to_dict() if self.memory else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One line of the answer: what a request takes by `name` (held, or an engine), and what fits in the memory given.

    `refused` says why an engine has no answer.
    """

    name: str
    footprint: Footprint | None = None
    requests: int | None = None
    longest: int | None = None
    refused: str = ""

    @property
    def bytes(self) -> int | None:
        if self.footprint is None:
            return None
        return self.footprint.bytes_held if self.name == HELD else self.footprint.bytes_reserved

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes": self.bytes,
            "requests": self.requests,
            "longest": self.longest,
            "refused": self.refused or None,
            "footprint": self.footprint.to_dict() if self.footprint else None,
        }


@dataclass(frozen=True, kw_only=True)
class SizeAnswer:
    """The formula line by line, bytes held and reserved, what fits, and what would make more fit."""

    question: SizeQuestion
    lines: tuple[Product, ...]
    rooms: tuple[Room, ...]
    tries: tuple[tuple[str, int], ...] = ()  # options, and how many requests fit with them

    @cached_property
    def held(self) -> Footprint:
        """What attention needs, of all requests."""
        return next(room.footprint for room in self.rooms if room.name == HELD and room.footprint)

    @property
    def request(self) -> int:
        """Bytes held of one request."""
        return sum(line.bytes for line in self.lines)

    @property
    def growth(self) -> int:
        """Bytes that one token more adds to a request."""
        q = self.question
        return held_bytes(q.decoder, q.types, tensor_parallel=q.devices)(q.tokens + 1, 1) - self.request

    @property
    def good(self) -> bool:
        """Whether what was asked for fits, where a memory was given: as held, and in every engine that answers."""
        counts = [room.requests for room in self.rooms if room.requests is not None]
        return all(n >= self.question.batch for n in counts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "question": self.question.to_dict(),
            "formula": [line.to_dict() for line in self.lines],
            "bytes_a_request": self.request,
            "bytes_a_further_token": self.growth,
            "bytes_held": self.held.bytes_held,
            "rooms": [room.to_dict() for room in self.rooms],
            "try": [{"options": options, "requests": n} for options, n in self.tries],
        }


def answer(question: SizeQuestion) -> SizeAnswer:
    """Everything `size` says of a question.

    >>> from kvtally.core.decoder import lesson
    >>> answer(SizeQuestion(decoder=lesson(), tokens=100)).request
    25600
    """
    q = question
    held = size(q.decoder, q.tokens, batch=q.batch, **q.named)
    needed = held_bytes(q.decoder, q.types, tensor_parallel=q.devices)
    first = _room(q, HELD, held, needed)
    rooms = [first, *(_engine(q, engine, first) for engine in q.engines)]
    return SizeAnswer(
        question=q,
        lines=products(q.decoder, q.tokens, types=q.types, tensor_parallel=q.devices),
        rooms=tuple(rooms),
        tries=tries(q) if q.memory else (),
    )


def _room(q: SizeQuestion, name: str, footprint: Footprint, needed: Bytes, like: Room | None = None) -> Room:
    """One line of the answer; what fits is looked for near what fits of another, as it is seldom far."""
    if q.memory is None:
        return Room(name=name, footprint=footprint)
    return Room(
        name=name,
        footprint=footprint,
        requests=fits(needed, q.memory.free, q.tokens, near=(like and like.requests) or 1),
        longest=longest(needed, q.memory.free, q.batch, near=(like and like.longest) or 1),
    )


def _engine(q: SizeQuestion, engine: str, like: Room) -> Room:
    """What one engine reserves; its refusal in its place where others are asked as well."""
    from kvtally.pure.engines import ENGINES, reserved

    block_size = q.block_size if ENGINES[engine][2] else None  # asked of all engines, it is for those with pages

    def footprint(tokens: int, batch: int) -> Footprint:
        return reserved(engine, q.decoder, tokens, batch=batch, block_size=block_size, **q.named)

    try:
        return _room(q, engine, footprint(q.tokens, q.batch), lambda t, b: footprint(t, b).bytes_reserved, like)
    except KvtallyError as error:
        if q.alone:
            raise error.at(engine) from None
        return Room(name=engine, refused=error.problem)


SMALLER = {"fp32": "bf16", "bf16": "fp8", "fp16": "fp8"}


def tries(q: SizeQuestion) -> tuple[tuple[str, int], ...]:
    """Options that would make more requests fit, and how many: a smaller type, half the length, twice the devices."""
    if q.memory is None:
        return ()
    half = max(1, q.tokens // 2)
    asked: Mapping[str, SizeQuestion] = {
        f"--tokens {half}": replace(q, tokens=half),
        f"--tensor-parallel-size {2 * q.devices}": replace(
            q, devices=2 * q.devices, memory=replace(q.memory, devices=2 * q.devices)
        ),
    }
    if q.dtype in SMALLER and q.k_dtype is None and q.v_dtype is None:
        smaller = SMALLER[q.dtype]
        asked = {f"--kv-cache-dtype {smaller}": replace(q, dtype=smaller), **asked}
    now = _requests(q, q.memory)
    found = []
    for options, question in asked.items():
        try:
            found.append((options, _requests(question, question.memory or q.memory)))
        except InputError:  # heads that do not divide among as many devices
            continue
    return tuple((options, n) for options, n in found if now < n < LONGEST)


def _requests(q: SizeQuestion, memory: Memory) -> int:
    return fits(held_bytes(q.decoder, q.types, tensor_parallel=q.devices), memory.free, q.tokens)
