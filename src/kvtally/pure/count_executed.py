"""Count by running a small decoder, one multiplication at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError, require_one_of
from kvtally.core.passes import Pass
from kvtally.core.span import KERNELS
from kvtally.core.tally import Tally, Term
from kvtally.pure import executed_latent, executed_sparse  # noqa: F401  (they register their mixers)
from kvtally.pure.executed_layer import Place, Weights, feed, fit, mix, norm
from kvtally.pure.kv_cache import Head, KVCache, Slot
from kvtally.pure.meter import Meter, Vector

MOST_MACS = 10**8  # about half a minute
SYMBOLS = 97  # different tokens where the decoder has no vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What passes cost when they were run, and what came out.

    `outputs` holds the last row of every single pass that makes logits: its logits, or the hidden
    state where the decoder has no output head. `positions` says of which position each is.
    """

    tally: Tally
    outputs: tuple[tuple[float, ...], ...]
    positions: tuple[int, ...]


def execute(
    decoder: Decoder,
    passes: Iterable[Pass],
    *,
    kernel: str = "causal",
    seed: int = 0,
    cache: KVCache | None = None,
    meter: Meter | None = None,
) -> Execution:
    """The multiplications (MACs), cache elements and comparisons of the passes, counted as they happen.

    The decoder has random weights and reads random tokens, the same for the same `seed`: the token at a
    position does not depend on the passes, so two lists of passes can be compared output by output. A
    pass over a past that no earlier pass has cached finds it cached all the same; what that takes is
    not counted, nor is what `Tally.uncounted` lists. More than 10^8 multiplications are refused with an
    InputError before anything runs. To look at outputs, give a `cache` that stores less accurately, or a
    `meter` that counts no multiplications; without them the cache is exact and everything is counted.

    >>> from kvtally.core.decoder import lesson
    >>> from kvtally.core.passes import cached, uncached
    >>> on, off = execute(lesson(2), cached(1, 3)), execute(lesson(2), uncached(1, 3, loop="lesson"))
    >>> on.tally.by("term")[Term.k_proj], off.tally.by("term")[Term.k_proj]  # 2*2 * 3; 2*2 * (1 + 2 + 3)
    (12, 24)
    >>> largest_difference(on, off) < 1e-9
    True
    """
    require_one_of("kernel", kernel, KERNELS)
    passes = tuple(passes)
    _refuse_if_long(decoder, passes, kernel)
    meter, weights, cache = meter or Meter(), Weights(seed), cache or KVCache()
    outputs, positions = [], []
    for group in passes:
        for p in group.each():
            cache = _holding(p.past, cache, decoder, weights)
            rows = _run(decoder, p, cache, meter, weights, kernel=kernel)
            if rows:
                outputs.append(tuple(rows[-1]))
                positions.append(p.end - 1)
    return Execution(tally=meter.tally(kernel), outputs=tuple(outputs), positions=tuple(positions))


def largest_difference(a: Execution, b: Execution) -> float:
    """The largest absolute difference between two outputs for the same position.

    Positions for which only one of them has an output are passed over; where they share none there is
    nothing to compare, which is an InputError.
    """
    other = dict(zip(b.positions, b.outputs, strict=True))
    both = [(row, other[at]) for at, row in zip(a.positions, a.outputs, strict=True) if at in other]
    if not both:
        raise InputError(
            f"the outputs are for positions {list(a.positions)} and {list(b.positions)}, expected some in common",
            hint="compare lists of passes that generate the same tokens",
        )
    return max(abs(x - y) for left, right in both for x, y in zip(left, right, strict=True))


def _run(decoder: Decoder, p: Pass, cache: KVCache, meter: Meter, weights: Weights, *, kernel: str) -> list[Vector]:
    """One pass: embeds its tokens, goes through the layers, keeps K and V, and returns the rows of logits."""
    meter.phase = p.phase
    meter.states += p.new
    meter.layer = None
    rows = [_embed(position, decoder, weights) for position in range(p.past, p.end)]
    rows = [_through(decoder.outside, Term.embed_proj, row, meter, weights) for row in rows]
    made: dict[Slot, list[Head]] = {}
    last = len(decoder.layers) - 1
    for index, layer in enumerate(decoder.layers):
        meter.layer = index
        attending = p.new if p.attending is None or index != last else p.attending
        place = Place(
            run=p, kernel=kernel, attending=attending, meter=meter, weights=weights,
            cache=cache, made=made, site=(index, ""), slot=(index, ""),
        )  # fmt: skip
        rows = _run_layer(layer, rows, place)
    if p.keep:
        for slot, heads in made.items():
            meter.layer = slot[0]
            cache.append(slot, heads, meter)
        cache.length += p.new
    meter.layer = None
    rows = [norm(row) for row in rows[len(rows) - p.logits :]]
    rows = [_through(decoder.head, Term.head_proj, row, meter, weights) for row in rows]
    if decoder.vocab_size == 0:
        return rows
    width = decoder.head[-1][1] if decoder.head else decoder.hidden_size
    head = weights.matrix(decoder.vocab_size, width, "lm_head") if rows else []
    return [meter.apply(Term.lm_head, head, fit(row, width)) for row in rows]


def _run_layer(layer: Layer, rows: list[Vector], place: Place) -> list[Vector]:
    """The rows that attend, after one layer: mixers side by side, attention to an encoder, MLP."""
    index = place.site[0]
    own = (index if layer.reads is None else layer.reads, "mixer")
    named = [("mixer", own, layer.mixer)]
    named += [(f"beside {n}", (index, f"beside {n}"), mixer) for n, mixer in enumerate(layer.beside)]
    normed, rows = [norm(row) for row in rows], rows[-place.attending :]
    for name, slot, mixer in named:
        if mixer is not None:
            rows = _added(rows, mix(mixer, normed, replace(place, site=(index, name), slot=slot)))
    if layer.cross is not None:
        encoder = replace(place, site=(index, "cross"), slot=(index, "cross"))
        rows = _added(rows, mix(layer.cross, [norm(row) for row in rows], encoder))
    if layer.mlp is not None:
        rows = _added(rows, [feed(layer.mlp, norm(row), replace(place, site=(index, "mlp"))) for row in rows])
    return rows


def _through(matrices: tuple[tuple[int, int], ...], term: Term, row: Vector, meter: Meter, weights: Weights) -> Vector:
    """`row` after matrices outside the layers, each added to what went in."""
    for index, (inputs, outputs) in enumerate(matrices):
        matrix = weights.matrix(outputs, inputs, str(term), index)
        more = fit(meter.apply(term, matrix, fit(row, inputs)), len(row))
        row = [a + b for a, b in zip(row, more, strict=True)]
    return row


def _added(rows: list[Vector], more: list[Vector]) -> list[Vector]:
    return [[a + b for a, b in zip(row, extra, strict=True)] for row, extra in zip(rows, more, strict=True)]


def _embed(position: int, decoder: Decoder, weights: Weights) -> Vector:
    """The embedding of the token at `position`, plus a signal that tells the position."""
    token = Random(f"{weights.seed} token {position}").randrange(decoder.vocab_size or SYMBOLS)
    (vector,) = weights.matrix(1, decoder.hidden_size, "embedding", token)
    return [v + math.sin((position + 1) / (channel + 1)) for channel, v in enumerate(vector)]


def _holding(past: int, cache: KVCache, decoder: Decoder, weights: Weights) -> KVCache:
    """A cache of exactly `past` tokens: this one, cut or filled up by a pass that is not counted."""
    if past == 0 or (past < cache.length and not cache.crop(past)):
        cache = KVCache(stored=cache.stored)
    if past > cache.length:
        missing = Pass(new=past - cache.length, past=cache.length, logits=0)
        _run(decoder, missing, cache, Meter(), weights, kernel="causal")
    return cache


def _refuse_if_long(decoder: Decoder, passes: tuple[Pass, ...], kernel: str) -> None:
    """Raises where the passes, and filling the cache for them, would take more than MOST_MACS multiplications."""
    work = held = 0
    for p in passes:
        if 0 < p.past != held:
            work += _at_most(decoder, Pass(new=p.past, logits=0), "causal")
        work += _at_most(decoder, p, kernel)
        held = p.end if p.keep else p.past
    if work > MOST_MACS:
        raise InputError(
            f"these passes take up to {work:,} multiplications, expected at most {MOST_MACS:,} to execute them",
            hint="ask for fewer tokens, or execute `decoder.shrunk()`",
        )


def _at_most(decoder: Decoder, p: Pass, kernel: str) -> int:
    """Multiplications that `p` takes at most, by the records and as if the MLP saw every row; one a token at least."""
    head = decoder.head_inputs * decoder.vocab_size + sum(i * o for i, o in decoder.head)
    work = p.times * p.logits * head + p.tokens * sum(i * o for i, o in decoder.outside)
    last = len(decoder.layers) - 1
    for index, layer in enumerate(decoder.layers):
        work += p.tokens * sum(layer.projections(decoder.hidden_size).values())
        work += p.tokens * layer.surplus(decoder.hidden_size)
        for mixer, again in zip(layer.mixers, layer.surplus_a_pair, strict=True):
            pairs = mixer.pairs(p, kernel, p.attending if index == last else None)
            work += pairs * (again + sum(mixer.pair_cost.values()))
            work += mixer.expanded(p) * sum(mixer.expansions(decoder.hidden_size).values())
    return max(work, p.tokens)
