"""What one decoder layer does to the rows of a pass, in plain Python: attention, recurrence, MLP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import singledispatch
from random import Random

from kvtally.core.errors import InputError
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.span import Span
from kvtally.core.tally import Term
from kvtally.pure.kv_cache import EVERYTHING, Head, KVCache, Slot, State
from kvtally.pure.meter import Meter, Vector


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
            self.made[self.slot] = make()
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
) -> list[Vector]:
    """For each head of one query softmax(q · k * scale) · v over `tokens` of the context; `scale` is 1/√d.

    Query heads share KV heads in groups. Products with tokens that are not `seen` are made and then
    masked, as a dense kernel does.
    """
    place.meter.compared(len(tokens))
    group, mixed = len(query) // len(heads), []
    for index, q in enumerate(query):
        head = heads[index // group]
        place.meter.on(terms[0])
        scores = [place.meter.dot(q, head.keys[j]) * (scale or 1 / math.sqrt(len(q))) for j in tokens]
        shares = softmax([score if open_ else -math.inf for score, open_ in zip(scores, seen, strict=True)])
        place.meter.on(terms[1])
        channels = zip(*(head.values[j] for j in tokens), strict=True)
        mixed.append([place.meter.dot(shares, channel) for channel in channels])
    return mixed


def attend_back(
    place: Place, queries: list[list[Vector]], heads: list[Head], span: Span, scale: float | None = None
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
        mixed.append(attend(place, query, heads, [key - first for key in near], seen, scale=scale))
    return mixed


def reach(span: Span) -> int:
    """How many tokens before a query it may see, and so how many are kept between passes."""
    return EVERYTHING if span.limit is None else span.limit - 1


@singledispatch
def mix(mixer: object, rows: list[Vector], place: Place) -> list[Vector]:  # noqa: ARG001
    """The rows that attend, after `mixer` has mixed positions."""
    raise InputError(
        f"the mixer is a `{type(mixer).__name__}`, which has no executed body; known: "
        "`Attention`, `LatentAttention`, `CrossAttention`, `Recurrent`",
        hint="register one with kvtally.pure.executed_layer.mix.register",
    )


@mix.register
def _attention(mixer: Attention, rows: list[Vector], place: Place) -> list[Vector]:
    def keys_and_values() -> list[Head]:
        keys = [split(place.project(Term.k_proj, row, kv * mixer.head_dim), kv) for row in rows]
        values = keys if mixer.k_is_v else [split(place.project(Term.v_proj, row, kv * v_dim), kv) for row in rows]
        return [Head([k[h] for k in keys], [v[h] for v in values]) for h in range(kv)]

    kv, v_dim = mixer.num_kv_heads, mixer.v_head_dim or mixer.head_dim
    wide = mixer.num_heads * mixer.head_dim
    projected = [place.project(Term.q_proj, row, 2 * wide if mixer.gated else wide) for row in rows]
    queries = [split(row[:wide], mixer.num_heads) for row in projected]
    heads = place.context(keys_and_values, reach(mixer.span))
    mixed = [join(row) for row in attend_back(place, queries, heads, mixer.span)]
    if mixer.gated:
        gates = [row[wide:] for row in projected[-place.attending :]]
        mixed = [[m * sigmoid(g) for m, g in zip(*pair, strict=True)] for pair in zip(mixed, gates, strict=True)]
    width = len(rows[0])
    return [place.project(Term.o_proj, row, width) if mixer.output else fit(row, width) for row in mixed]


@mix.register
def _latent(mixer: LatentAttention, rows: list[Vector], place: Place) -> list[Vector]:
    """The cache keeps one latent a token, as the key of one KV head whose values are empty."""
    rank, nope = mixer.kv_lora_rank, mixer.qk_nope_head_dim
    numbers = range(mixer.num_heads)
    to_key = [place.weights.matrix(nope, rank, *place.site, "kv_b_proj", "key", h) for h in numbers]
    to_value = [place.weights.matrix(mixer.v_head_dim, rank, *place.site, "kv_b_proj", "value", h) for h in numbers]
    scale = 1 / math.sqrt(nope + mixer.qk_rope_head_dim)
    apply = place.meter.apply

    def latents() -> list[Head]:
        made = [place.project(Term.kv_a_proj, row, rank + mixer.qk_rope_head_dim) for row in rows]
        return [Head(made, [[] for _ in made])]

    queries = [_latent_query(mixer, row, place) for row in rows]
    (kept,) = place.context(latents, reach(mixer.span))
    if mixer.absorbed:
        absorb = [list(map(list, zip(*matrix, strict=True))) for matrix in to_key]
        queries = [[apply(Term.q_absorb, absorb[h], q[h][:nope]) + q[h][nope:] for h in numbers] for q in queries]
        over_latents = [Head(kept.keys, [latent[:rank] for latent in kept.keys])]
        mixed = attend_back(place, queries, over_latents, mixer.span, scale)
        mixed = [[apply(Term.v_absorb, to_value[h], row[h]) for h in numbers] for row in mixed]
    else:
        heads = [Head() for _ in numbers]
        for latent in kept.keys:
            for h, head in enumerate(heads):
                head.keys.append(apply(Term.kv_b_proj, to_key[h], latent[:rank]) + latent[rank:])
                head.values.append(apply(Term.kv_b_proj, to_value[h], latent[:rank]))
        mixed = attend_back(place, queries, heads, mixer.span, scale)
    return [place.project(Term.o_proj, join(row), len(rows[0])) for row in mixed]


def _latent_query(mixer: LatentAttention, row: Vector, place: Place) -> list[Vector]:
    width, term = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim), Term.q_proj
    if mixer.q_lora_rank is not None:
        row, term = place.project(Term.q_a_proj, row, mixer.q_lora_rank), Term.q_b_proj
    return split(place.project(term, row, width), mixer.num_heads)


@mix.register
def _cross(mixer: CrossAttention, rows: list[Vector], place: Place) -> list[Vector]:
    """Attention to an encoder's output, whose K and V are made by the pass that has no past."""
    kv, width = mixer.num_kv_heads, len(rows[0])
    if place.run.past == 0:
        encoded = place.weights.matrix(mixer.source, width, *place.site, "encoder output")
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
        x = row
        for index, (term, inputs, outputs) in enumerate(mixer.matrices):
            if term not in late:
                x = place.project(term, fit(x, inputs or len(row)), outputs or len(row), index)
        x = _convolve(mixer, x, state, place) if mixer.conv_channels else x
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
    return State(inputs, [[[0.0] * mixer.value_dim for _ in range(mixer.key_dim)] for _ in range(mixer.num_heads)])


def _convolve(mixer: Recurrent, x: Vector, state: State, place: Place) -> Vector:
    """A causal convolution a channel: the last inputs, which the state remembers, and this one."""
    taps = [*state.inputs, fit(x, mixer.conv_channels)]
    state.inputs = taps[1:]
    weights = place.weights.matrix(mixer.conv_channels, mixer.conv_kernel, *place.site, "conv1d")
    place.meter.on(Term.conv1d)
    return [silu(place.meter.dot(w, channel)) for w, channel in zip(weights, zip(*taps, strict=True), strict=True)]


def _recall(mixer: Recurrent, x: Vector, state: State, place: Place) -> Vector:
    """Writes key * value into the matrix of each head, faded a little, and reads it with the query."""
    keys = split(norm(fit(x, mixer.num_heads * mixer.key_dim)), mixer.num_heads)
    values = split(fit(x[::-1], mixer.num_heads * mixer.value_dim), mixer.num_heads)
    out: Vector = []
    for matrix, key, value in zip(state.matrices, keys, values, strict=True):
        place.meter.on(Term.state_update)
        for line, k in zip(matrix, key, strict=True):
            line[:] = [0.9 * old + place.meter.mul(k, v) for old, v in zip(line, value, strict=True)]
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
    scores = place.project(Term.router, row, mlp.num_experts + mlp.shared_gate)
    ranked = sorted(range(mlp.num_experts), key=lambda e: -scores[e])[: mlp.per_token]
    total = [0.0] * len(row)
    for share, expert in zip(softmax([scores[e] for e in ranked]), ranked, strict=True):
        total = [
            t + share * y for t, y in zip(total, _dense(row, mlp.width, place, expert, gated=mlp.gated), strict=True)
        ]
    if mlp.shared:
        gate = sigmoid(scores[-1]) if mlp.shared_gate else 1.0
        shared = _dense(row, mlp.shared, place, "shared", gated=mlp.gated)
        total = [t + gate * y for t, y in zip(total, shared, strict=True)]
    return total


def _dense(row: Vector, width: int, place: Place, *name: object, gated: bool) -> Vector:
    inner = place.project(Term.up_proj, row, width, *name)
    if gated:
        gates = place.project(Term.gate_proj, row, width, *name)
        inner = [silu(gate) * up for gate, up in zip(gates, inner, strict=True)]
    else:
        inner = [silu(up) for up in inner]
    return place.project(Term.down_proj, inner, len(row), *name)


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
