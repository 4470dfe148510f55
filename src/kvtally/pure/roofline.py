"""When a pass is bound by memory rather than arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, isqrt
from typing import Any

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.dtype import dtype
from kvtally.core.errors import InputError, require_int
from kvtally.core.holding import rows_of
from kvtally.core.mlp import Experts
from kvtally.core.passes import LONGEST, Pass
from kvtally.core.tally import Term
from kvtally.pure.size import CacheTypes, cache_types

PROJECTIONS, MLP, HEAD = "projections", "MLP", "output head"  # multiply weights
ATTENTION, INDEX, RECURRENCE = "attention", "index", "recurrence"  # multiply what the cache holds
CACHED = (ATTENTION, INDEX, RECURRENCE)
STATES = frozenset({Term.state_update, Term.state_read})
INDEXES = frozenset({Term.index_qk, Term.index_sum})
LEFT_OUT = "activations (queries, outputs, scores), embedding look-up, norms; weights are read once a pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one kind of work takes in one pass: floating-point operations, bytes of weights and of the cache moved."""

    work: str
    flops: int
    weights: int = 0
    cache: int = 0

    @property
    def moved(self) -> int:
        """Bytes moved to and from memory."""
        return self.weights + self.cache

    @property
    def intensity(self) -> Fraction:
        """FLOPs for each byte moved; 0 where nothing is."""
        return Fraction(self.flops, self.moved) if self.moved else Fraction(0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "flops": self.flops,
            "weight_bytes": self.weights,
            "cache_bytes": self.cache,
            "flops_per_byte": float(self.intensity),
        }


def loads(
    decoder: Decoder, p: Pass, *, batch: int = 1, types: CacheTypes | None = None, weights: str = "bf16"
) -> tuple[Load, ...]:
    """What a pass `p` of `batch` sequences takes, by kind of work.

    FLOPs are two for each multiplication that the mask allows. Bytes: every matrix once a pass, whatever the
    batch (of experts as many as batch * new tokens can choose, at most all); once a sequence, K and V of the past
    read, states read where there is a past, and both written where they are kept. An indexer's choice is not taken
    as less read, as no framework reads less. Raises InputError for several passes. Not counted: LEFT_OUT.

    >>> from kvtally.core.decoder import lesson
    >>> {x.work: float(x.intensity) for x in loads(lesson(), Pass(new=1, past=99, phase="decode"))}
    {'projections': 1.0, 'attention': 1.0}
    """
    require_int("batch", batch, least=1, most=LONGEST)
    if p.times != 1:
        raise InputError(
            f"`times` is {p.times:,}, expected 1: every pass moves its weights again",
            hint="ask for those of Pass.each()",
        )
    types = types or cache_types()
    flops: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    known: dict[tuple[int, ...], tuple[Counter[str], Counter[str], Counter[str]]] = {}
    for index, layer in enumerate(decoder.layers, start=1):
        rows = p.new if index < len(decoder.layers) or p.attending is None else p.attending
        alike = (rows, id(layer.mixer), id(layer.cross), id(layer.mlp), layer.reads is None, *map(id, layer.beside))
        if alike not in known:
            known[alike] = _layer(decoder.hidden_size, layer, p, rows, batch=batch, types=types)
        for total, part in zip((flops, moved, elements), known[alike], strict=True):
            total.update(part)
    outside = sum(inputs * outputs for inputs, outputs in decoder.outside)
    head = decoder.head_inputs * decoder.vocab_size + sum(inputs * outputs for inputs, outputs in decoder.head)
    flops.update({PROJECTIONS: 2 * batch * p.new * outside, HEAD: 2 * batch * p.logits * head})
    elements.update({PROJECTIONS: outside, HEAD: head})
    each = dtype(weights, what="weights").per_element
    works = [work for work in (PROJECTIONS, MLP, HEAD, *CACHED) if flops[work] or moved[work]]
    return tuple(Load(work=w, flops=flops[w], weights=ceil(each * elements[w]), cache=moved[w]) for w in works)


def _layer(
    hidden: int, layer: Layer, p: Pass, rows: int, *, batch: int, types: CacheTypes
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """FLOPs, bytes of the cache moved, and elements of weights of one layer, the last `rows` positions attending."""
    flops: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    every = layer.for_every_token(hidden)
    mlp = sum(layer.mlp.projections(hidden).values()) if layer.mlp else 0
    state = sum(n for term, n in every.items() if term in STATES)
    before, after = sum(every.values()) - state, sum(layer.for_attending_rows(hidden).values()) - mlp
    flops.update({PROJECTIONS: before * p.new + after * rows, RECURRENCE: state * p.new, MLP: mlp * rows})
    elements = Counter({PROJECTIONS: before + after, MLP: _touched(layer, hidden, batch * rows)})
    for mixer, writes in zip(layer.mixers, layer.writers, strict=True):
        expansion, expanded = sum(mixer.expansions(hidden).values()), mixer.expanded(p)
        elements[PROJECTIONS] += expansion if expanded else 0
        flops[PROJECTIONS] += expansion * expanded
        pairs = mixer.pairs(p, "causal", rows)
        for term, n in mixer.pair_cost.items():
            flops[INDEX if term in INDEXES else ATTENTION] += n * pairs
        tokens = mixer.read(p) + (mixer.written(p) if writes else 0)
        for kept in rows_of(layer, mixer):
            work = RECURRENCE if not kept.grows else INDEX if kept.part == "index" else ATTENTION
            times = tokens if kept.grows else (p.past > 0) + p.keep
            moved[work] += times * types.of(kept).bytes(kept.heads, kept.width)
    return (
        Counter({work: 2 * batch * n for work, n in flops.items()}),
        Counter({work: batch * n for work, n in moved.items()}),
        elements,
    )


def _touched(layer: Layer, hidden: int, tokens: int) -> int:
    """Elements of the MLP's weights that `tokens` tokens read: of experts at most as many as they can choose."""
    mlp = layer.mlp
    if isinstance(mlp, Experts):
        mlp = replace(mlp, per_token=min(mlp.num_experts, tokens * mlp.per_token))
    return sum(mlp.projections(hidden).values()) if mlp else 0


def whole(parts: tuple[Load, ...], work: str = "whole pass") -> Load:
    """All loads of a pass together."""
    return Load(
        work=work,
        flops=sum(x.flops for x in parts),
        weights=sum(x.weights for x in parts),
        cache=sum(x.cache for x in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """One decode step and one prefill against a ridge point, and from where on each is bound by arithmetic.

    `batch_projections`, `batch_whole`: the smallest batch at which the projections (the whole) of a decode step
    reach the ridge; `prefill_projections`, `prefill_whole`: the shortest prompt at which they do in prefill.
    None: at none up to LONGEST. `cache_outgrows_weights`: the context from which a decode step moves more cache than
    weights. Activations are left out, so every intensity is an upper bound.
    """

    tokens: int
    batch: int
    ridge: Fraction
    decode: tuple[Load, ...]
    prefill: tuple[Load, ...]
    batch_projections: int | None
    batch_whole: int | None
    prefill_projections: int | None
    prefill_whole: int | None
    cache_outgrows_weights: int | None

    def to_dict(self) -> dict[str, Any]:
        plain = {n: getattr(self, n) for n in self.__slots__ if n not in ("ridge", "decode", "prefill")}
        passes = {n: [x.to_dict() for x in getattr(self, n)] for n in ("decode", "prefill")}
        return {**plain, "ridge": float(self.ridge), **passes, "left_out": LEFT_OUT}


def roofline(
    decoder: Decoder,
    tokens: int,
    *,
    ridge: Fraction,
    batch: int = 1,
    types: CacheTypes | None = None,
    weights: str = "bf16",
) -> Roofline:
    """The loads of a decode step after `tokens` tokens and of a prefill of as many, against `ridge` FLOPs a byte.

    Batching multiplies the FLOPs of projections and moves their weights once, so that their intensity grows;
    attention over the cache moves more bytes with every sequence, and its intensity does not change.
    """
    require_int("tokens", tokens, least=1, most=LONGEST - 1)
    if ridge <= 0:
        raise InputError(f"`ridge` is {ridge}, expected more than 0 FLOPs for each byte")

    def step(batch: int, past: int = tokens) -> tuple[Load, ...]:
        return loads(decoder, Pass(new=1, past=past, phase="decode"), batch=batch, types=types, weights=weights)

    def prompt(new: int) -> tuple[Load, ...]:
        return loads(decoder, Pass(new=new), batch=batch, types=types, weights=weights)

    def bound(parts: tuple[Load, ...]) -> bool:
        return whole(parts).intensity >= ridge

    return Roofline(
        tokens=tokens,
        batch=batch,
        ridge=ridge,
        decode=step(batch),
        prefill=prompt(tokens),
        batch_projections=smallest(lambda n: bound(_projected(step(n)))),
        batch_whole=smallest(lambda n: bound(step(n))),
        prefill_projections=smallest(lambda n: bound(_projected(prompt(n)))),
        prefill_whole=smallest(lambda n: bound(prompt(n))),
        cache_outgrows_weights=smallest(lambda n: _outgrown(step(batch, n))),
    )


def _projected(parts: tuple[Load, ...]) -> tuple[Load, ...]:
    """The loads that multiply weights."""
    return tuple(x for x in parts if x.work not in CACHED)


def _outgrown(parts: tuple[Load, ...]) -> bool:
    """Whether more of the cache is moved than of the weights."""
    found = whole(parts)
    return found.cache > found.weights


def smallest(holds: Callable[[int], bool], most: int = LONGEST - 1) -> int | None:
    """The smallest n from 1 to `most` for which a condition holds that goes on holding; None where there is none.

    >>> smallest(lambda n: n * n > 50), smallest(lambda n: False)
    (8, None)
    """
    low, high = 0, 1
    while not holds(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def scores_outgrow(memory: int) -> int:
    """The shortest prompt whose N x N matrix of scores, of one head, 2 bytes each, is larger than `memory` bytes.

    N * N * 2 > memory. A fused kernel never makes that matrix.

    >>> scores_outgrow(50 * 2**20)  # 5,120 * 5,120 * 2 = 50 MiB
    5121
    """
    require_int("memory", memory, least=0)
    return isqrt(memory // 2) + 1
