"""What one decoder layer does to the rows of a pass, in plain Python: attention, recurrence, MLP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import singledispatch
from random import Random

from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.span import Span
from kvtally.core.tally import Term
from kvtally.pure.kv_cache import EVERYTHING, Head, KVCache, Slot, State
from kvtally.pure.meter import Meter, Vector

MLP = (Term.up_proj, Term.gate_proj, Term.down_proj)


class Weights:
    """Random matrices, the same for the same seed and name, made when they are first asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[tuple[object, ...], list[Vector]] = {}

    def matrix(self, rows: int, columns: int, *name: object) -> list[Vector]:
        """`rows` x `columns` numbers of mean 0 and variance 1 / `columns`."""
        key = (rows, columns, *name)
        if key not in self._made:
            draw, bound = Random(f"{self.seed} {key}").uniform, math.sqrt(3 / columns)
            self._made[key] = [[draw(-bound, bound) for _ in range(columns)] for _ in range(rows)]
        return self._made[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One mixer or MLP of one layer in one pass: what it may use.

    `slot` is where its K and V are kept: another layer's where it shares them. `made` holds the K and
    V that this pass has made so far. The last `attending` rows attend.
    """

    run: Pass
    kernel: str
    attending: int
    meter: Meter
    weights: Weights
    cache: KVCache
    made: dict[Slot, list[Head]]
    site: Slot
    slot: Slot

    def project(self, term: Term, vector: Vector, outputs: int, *name: object) -> Vector:
        """The product of this place's matrix for `term` and `vector`: len(vector) * outputs multiplications."""
        matrix = self.weights.matrix(outputs, len(vector), *self.site, str(term), *name)
        return self.meter.apply(term, matrix, vector)

    def context(self, make: Callable[[], list[Head]], reach: int) -> list[Head]:
        """Keys and values of the past, from the cache, followed by those of this pass, made only once."""
        past = self.cache.read(self.slot, reach, self.meter)
        if self.slot not in self.made:
            self.made[self.slot] = self.cache.stored(make())
        new = self.made[self.slot]
        past = past or [Head() for _ in new]
        return [Head(old.keys + newer.keys, old.values + newer.values) for old, newer in zip(past, new, strict=True)]


def attend(
    place: Place,
    query: list[Vector],
    heads: list[Head],
    tokens: Sequence[int],
    seen: Sequence[bool],
    *,
    terms: tuple[Term, Term] = (Term.qk, Term.pv),
    scale: float | None = None,
    again: bool = False,
) -> list[Vector]:
    """For each head of one query softmax(q · k * scale) · v over `tokens` of the context; `scale` is 1/√d.

    Query heads share KV heads in groups. Products with tokens that are not `seen` are made and then
    masked, as a dense kernel does; `again`: scores are made twice.
    """
    place.meter.compared(len(tokens))
    group, mixed = len(query) // len(heads), []
    for index, q in enumerate(query):
        head = heads[index // group]
        place.meter.on(terms[0])
        scores = [place.meter.dot(q, head.keys[j]) * (scale or 1 / math.sqrt(len(q))) for j in tokens]
        shares = softmax([score if open_ else -math.inf for score, open_ in zip(scores, seen, strict=True)])
        if again:
            place.meter.on(Term.surplus)
            scores = [place.meter.dot(q, head.keys[j]) for j in tokens]
        place.meter.on(terms[1])
        channels = zip(*(head.values[j] for j in tokens), strict=True)
        mixed.append([place.meter.dot(shares, channel) for channel in channels])
    return mixed


def attend_back(
    place: Place,
    queries: list[list[Vector]],
    heads: list[Head],
    span: Span,
    scale: float | None = None,
    *,
    again: bool = False,
) -> list[list[Vector]]:
    """Attention of the last `attending` rows to themselves and the tokens before, as far as `span` sees.

    A causal kernel makes the pairs that the mask allows; a dense one those of every row that attends
    with every token that is held for the first of them, and masks afterwards.
    """
    end = place.run.past + place.run.new
    first = end - len(heads[0].keys)  # position of the oldest token of the context
    start = end - place.attending  # position of the first row that attends
    mixed = []
    for position, query in enumerate(queries[-place.attending :], start):
        if place.kernel == "dense":
            near = list(range(max(first, start - reach(span)), end))
        else:
            back = range(max(first, position - reach(span)), position + 1)
            near = [key for key in back if span.sees(position, key)]
        seen = [span.sees(position, key) for key in near]
        mixed.append(attend(place, query, heads, [key - first for key in near], seen, scale=scale, again=again))
    return mixed


def reach(span: Span) -> int:
    """How many tokens before a query it may see, and so how many are kept between passes."""
    return EVERYTHING if span.limit is None else span.limit - 1


@singledispatch
def mix(mixer: object, rows: list[Vector], place: Place) -> list[Vector]:  # noqa: ARG001
    """The rows that attend, after `mixer` has mixed positions."""
    raise InputError(
        f"the mixer is a `{type(mixer).__name__}`, which has no executed body; known: "
        "`Attention`, `LatentAttention`, `Indexer`, `CompressedAttention`, `CrossAttention`, `Recurrent`",
        hint="register one with kvtally.pure.executed_layer.mix.register",
    )


@mix.register
def _attention(mixer: Attention, rows: list[Vector], place: Place) -> list[Vector]:
    def keys_and_values() -> list[Head]:
        keys = [split(place.project(Term.k_proj, row, kv * mixer.head_dim), kv) for row in rows]
        values = keys if mixer.k_is_v else [split(place.project(Term.v_proj, row, kv * v_dim), kv) for row in rows]
        return [Head([k[h] for k in keys], [v[h] for v in values]) for h in range(kv)]

    kv, v_dim = mixer.num_kv_heads, mixer.v_head_dim or mixer.head_dim
    wide, width = mixer.num_heads * mixer.head_dim, len(rows[0])
    rows = [fit(row, mixer.inputs or width) for row in rows]
    projected = [place.project(Term.q_proj, row, 2 * wide if mixer.gated else wide) for row in rows]
    queries = [split(row[:wide], mixer.num_heads) for row in projected]
    heads = place.context(keys_and_values, reach(mixer.span))
    if mixer.value_mask:
        for values in zip(*(head.values for head in heads), strict=True):
            place.project(Term.extra_proj, join(list(values)), kv)
    if mixer.differential:
        halves = zip(heads[: kv // 2] * 2, heads[kv // 2 :] * 2, strict=True)
        pairs = [[a + b for a, b in zip(one.values, two.values, strict=True)] for one, two in halves]
        heads = [Head(head.keys, values) for head, values in zip(heads, pairs, strict=True)]
    again = mixer.differential and place.kernel == "dense"
    by_head = attend_back(place, queries, heads, mixer.span, again=again)
    mixed = [join(difference(row) if mixer.differential else row) for row in by_head]
    if mixer.gated:
        gates = [row[wide:] for row in projected[-place.attending :]]
        mixed = [[m * sigmoid(g) for m, g in zip(*pair, strict=True)] for pair in zip(mixed, gates, strict=True)]
    return [place.project(Term.o_proj, row, width) if mixer.output else fit(row, width) for row in mixed]


def difference(heads: list[Vector]) -> list[Vector]:
    """The first half of the heads less a part of the second: nothing that counts."""
    half = len(heads) // 2
    pairs = zip(heads[:half], heads[half:], strict=True)
    return [[a - 0.2 * b for a, b in zip(one, two, strict=True)] for one, two in pairs]


@mix.register
def _cross(mixer: CrossAttention, rows: list[Vector], place: Place) -> list[Vector]:
    """Attention to an encoder's output, whose K and V are made by the pass that has no past."""
    kv, width = mixer.num_kv_heads, len(rows[0])
    if place.run.past == 0:
        encoded = place.weights.matrix(mixer.source, mixer.source_size or width, *place.site, "encoder output")
        keys = [split(place.project(Term.cross_k_proj, row, kv * mixer.head_dim), kv) for row in encoded]
        values = [split(place.project(Term.cross_v_proj, row, kv * mixer.head_dim), kv) for row in encoded]
        heads = [Head([k[h] for k in keys], [v[h] for v in values]) for h in range(kv)]
        if place.run.keep:
            place.cache.keep_source(place.slot, heads, place.meter)
    else:
        heads = place.cache.read_source(place.slot, place.meter)
    everything, seen = range(mixer.source), [True] * mixer.source
    mixed = []
    for row in rows[-place.attending :]:
        query = split(place.project(Term.cross_q_proj, row, mixer.num_heads * mixer.head_dim), mixer.num_heads)
        heads_of_row = attend(place, query, heads, everything, seen, terms=(Term.cross_qk, Term.cross_pv))
        mixed.append(place.project(Term.cross_o_proj, join(heads_of_row), width))
    return mixed


@mix.register
def _recurrent(mixer: Recurrent, rows: list[Vector], place: Place) -> list[Vector]:
    """Each token goes through the matrices, the convolution and the state, in order of position."""
    state = deepcopy(place.cache.states.get(place.slot)) or _empty(mixer)
    late = {Term.o_proj, Term.out_proj}  # made for rows that attend only
    mixed = []
    for row in rows:
        x, state.last = _shifted(row, state.last), fit(row, mixer.shifted)
        for index, (term, inputs, outputs) in enumerate(mixer.matrices):
            if term not in late:
                x = place.project(term, fit(x, inputs or len(row)), outputs or len(row), index)
        x = _convolve(mixer, x, state, place) if mixer.conv_channels else x
        x = _scan(x, state)
        mixed.append(_recall(mixer, x, state, place) if mixer.num_heads else x)
    if place.run.keep:
        place.cache.keep_state(place.slot, state, place.meter)
    width, attending = len(rows[0]), mixed[-place.attending :]
    for index, (term, inputs, outputs) in enumerate(mixer.matrices):
        if term in late:
            attending = [place.project(term, fit(x, inputs or width), outputs or width, index) for x in attending]
    return [fit(x, width) for x in attending]


def _empty(mixer: Recurrent) -> State:
    inputs = [[0.0] * mixer.conv_channels for _ in range(mixer.conv_kernel - 1)]
    matrices = [[[0.0] * mixer.value_dim for _ in range(mixer.key_dim)] for _ in range(mixer.num_heads)]
    return State(inputs, matrices, [0.0] * mixer.shifted, [0.0] * mixer.scanned)


def _shifted(row: Vector, last: Vector) -> Vector:
    """`row` mixed with the token before it, element by element: nothing that counts."""
    return [0.7 * v + 0.3 * w for v, w in zip(row, fit(last, len(row)), strict=True)] if last else row


def _scan(x: Vector, state: State) -> Vector:
    """Every element of a vector state fades and takes up its own input: nothing that counts."""
    state.sums = [0.9 * old + v for old, v in zip(state.sums, fit(x, len(state.sums)), strict=True)]
    return state.sums or x


def _convolve(mixer: Recurrent, x: Vector, state: State, place: Place) -> Vector:
    """A causal convolution a channel, over its group: the last inputs, which the state remembers, and this one."""
    taps = [*state.inputs, fit(x, mixer.conv_channels)]
    state.inputs = taps[1:]
    group = mixer.conv_group
    weights = place.weights.matrix(mixer.conv_channels, mixer.conv_kernel * group, *place.site, "conv1d")
    place.meter.on(Term.state_read if mixer.conv_dynamic else Term.conv1d)
    firsts = [channel - channel % group for channel in range(mixer.conv_channels)]
    seen = [join([tap[first : first + group] for tap in taps]) for first in firsts]
    return [silu(place.meter.dot(w, inputs)) for w, inputs in zip(weights, seen, strict=True)]


def _recall(mixer: Recurrent, x: Vector, state: State, place: Place) -> Vector:
    """Writes key * value into the matrix of each head, faded a little, and reads it with the query.

    The delta rule takes off the value what the matrix already gives for that key.
    """
    keys = split(norm(fit(x, mixer.num_heads * mixer.key_dim)), mixer.num_heads)
    values = split(fit(x[::-1], mixer.num_heads * mixer.value_dim), mixer.num_heads)
    out: Vector = []
    for matrix, key, value in zip(state.matrices, keys, values, strict=True):
        place.meter.on(Term.state_update)
        known = [place.meter.dot(key, column) / len(key) for column in zip(*matrix, strict=True)] if mixer.delta else []
        fresh = [v - old for v, old in zip(value, known, strict=True)] if known else value
        for line, k in zip(matrix, key, strict=True):
            line[:] = [0.9 * old + place.meter.mul(k, v) for old, v in zip(line, fresh, strict=True)]
        place.meter.on(Term.state_read)
        out += [place.meter.dot(key[::-1], column) for column in zip(*matrix, strict=True)]
    return out


@singledispatch
def feed(mlp: object, row: Vector, place: Place) -> Vector:  # noqa: ARG001
    """One row after the MLP."""
    raise InputError(
        f"the mlp is a `{type(mlp).__name__}`, which has no executed body; known: `Mlp`, `Experts`",
        hint="register one with kvtally.pure.executed_layer.feed.register",
    )


@feed.register
def _mlp(mlp: Mlp, row: Vector, place: Place) -> Vector:
    return _dense(row, mlp.width, place, gated=mlp.gated)


@feed.register
def _experts(mlp: Experts, row: Vector, place: Place) -> Vector:
    """The experts with the highest scores, each weighted by its share, and the shared part."""
    hidden, scores = row, row
    for depth, outputs in enumerate((*mlp.router, mlp.num_experts + mlp.shared_gate)):
        scores = place.project(Term.router, scores, outputs, depth)
    if mlp.latent is not None:
        row = place.project(Term.extra_proj, row, mlp.latent, "into the latent")
    ranked = sorted(range(mlp.num_experts), key=lambda e: -scores[e])[: mlp.per_token]
    total = [0.0] * len(row)
    for share, expert in zip(softmax([scores[e] for e in ranked]), ranked, strict=True):
        total = [
            t + share * y for t, y in zip(total, _dense(row, mlp.width, place, expert, gated=mlp.gated), strict=True)
        ]
    if mlp.all_run and place.kernel == "dense":
        for expert in set(range(mlp.num_experts)).difference(ranked):
            _dense(row, mlp.width, place, expert, gated=mlp.gated, terms=(Term.surplus,) * 3)
    if mlp.latent is not None:
        total = place.project(Term.extra_proj, total, len(hidden), "out of the latent")
    if mlp.shared:
        gate = sigmoid(scores[-1]) if mlp.shared_gate else 1.0
        shared = _dense(hidden, mlp.shared, place, "shared", gated=mlp.gated)
        total = [t + gate * y for t, y in zip(total, shared, strict=True)]
    return total


def _dense(
    row: Vector, width: int, place: Place, *name: object, gated: bool, terms: tuple[Term, Term, Term] = MLP
) -> Vector:
    to_up, to_gate, to_down = terms
    inner = place.project(to_up, row, width, *name)
    if gated:
        gates = place.project(to_gate, row, width, *name)
        inner = [silu(gate) * up for gate, up in zip(gates, inner, strict=True)]
    else:
        inner = [silu(up) for up in inner]
    return place.project(to_down, inner, len(row), *name)


def norm(x: Vector) -> Vector:
    """`x` scaled to a root mean square of 1. Not counted, like all that follows."""
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + 1e-6)
    return [v * scale for v in x]


def softmax(scores: Vector) -> Vector:
    """Shares that sum to 1; a masked score of -inf gets none."""
    top = max(scores)
    powers = [math.exp(s - top) for s in scores]
    total = sum(powers)
    return [p / total for p in powers]


def sigmoid(v: float) -> float:
    """1 / (1 + e^-v)."""
    return 1 / (1 + math.exp(-v))


def silu(v: float) -> float:
    """v * sigmoid(v)."""
    return v * sigmoid(v)


def split(vector: Vector, heads: int) -> list[Vector]:
    """`vector` cut into one piece a head."""
    size = len(vector) // heads
    return [vector[h * size : (h + 1) * size] for h in range(heads)]


def join(heads: list[Vector]) -> Vector:
    """The pieces of all heads in one vector."""
    return [v for head in heads for v in head]


def fit(vector: Vector, width: int) -> Vector:
    """`vector` repeated or cut to `width` elements, where two sizes do not meet."""
    return [vector[i % len(vector)] for i in range(width)]
