"""What an indexer, and attention to compressed entries, do to the rows of a pass, in plain Python."""

from __future__ import annotations

from dataclasses import replace

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.tally import Term
from kvtally.pure.executed_layer import Place, attend, fit, join, mix, norm, reach, softmax, split
from kvtally.pure.kv_cache import EVERYTHING, Head
from kvtally.pure.meter import Vector


@mix.register
def _indexer(mixer: Indexer, rows: list[Vector], place: Place) -> list[Vector]:
    """Scores of every key there is; the mean score of a row is what it adds to it.

    A real indexer adds nothing, but chooses; here its scores show in the outputs instead, so that a
    wrong index key would, and attention takes the newest keys for the chosen ones.
    """
    width, d = len(rows[0]), mixer.head_dim

    def keys() -> list[Head]:
        made = [place.project(Term.index_k_proj, row, mixer.key_width) for row in rows]
        made = made if not mixer.pooled else pooled(made, mixer.ratio, d, place, overlap=True)
        return [Head(made, [[] for _ in made])]

    inputs = [row if mixer.q_lora_rank is None else fit(row, mixer.q_lora_rank) for row in rows]
    queries = [split(place.project(Term.index_q_proj, row, mixer.num_heads * d), mixer.num_heads) for row in inputs]
    weights = [place.project(Term.index_weights_proj, row, mixer.num_heads) for row in rows] if mixer.weighted else None
    (kept,) = place.context(keys, EVERYTHING)
    scored = means(kept.keys, mixer.ratio) if mixer.averaged else kept.keys
    dense = place.kernel == "dense" and not mixer.averaged
    added = []
    for index in range(len(rows) - place.attending, len(rows)):
        position = place.run.past + index
        near = [key for key in range(len(scored)) if dense or mixer.span.sees(position, key)]
        place.meter.compared(len(near))
        total = 0.0
        for key in near:
            place.meter.on(Term.index_qk)
            scores = [max(0.0, place.meter.dot(query, scored[key])) for query in queries[index]]
            place.meter.on(Term.index_sum)
            score = place.meter.dot(weights[index], scores) if weights else sum(scores)
            total += score if mixer.span.sees(position, key) else 0.0
        added.append([total / (position + 1)] * width)
    return added


def means(keys: list[Vector], ratio: int) -> list[Vector]:
    """The mean of every `ratio` keys that are there: nothing that counts."""
    whole = range(0, len(keys) - ratio + 1, ratio)
    return [[sum(channel) / ratio for channel in zip(*keys[k : k + ratio], strict=True)] for k in whole]


@mix.register
def _compressed(mixer: CompressedAttention, rows: list[Vector], place: Place) -> list[Vector]:
    """The cache keeps the window as one KV head, and the entries as another in a slot of their own."""

    def tokens() -> list[Head]:
        made = [norm(place.project(Term.k_proj, row, mixer.head_dim)) for row in rows]
        return [Head(made, [[] for _ in made])]

    def entries() -> list[Head]:
        made = [place.project(Term.compress_proj, row, mixer.compressed_width) for row in rows]
        made = pooled(made, mixer.ratio or 1, mixer.head_dim, place, overlap=mixer.overlap)
        return [Head(made, [[] for _ in made])]

    (near,) = place.context(tokens, reach(mixer.span))
    layer, name = place.slot
    far = replace(place, slot=(layer, f"{name}, entries")).context(entries, EVERYTHING)[0].keys if mixer.ratio else []
    both = Head(near.keys + far, near.keys + far)
    end = place.run.past + place.run.new
    start, first = end - place.attending, end - len(near.keys)  # of the rows that attend, of the window that is there
    out = []
    for position, row in enumerate(rows, end - len(rows)):
        low = place.project(Term.q_a_proj, row, mixer.q_lora_rank)
        query = split(place.project(Term.q_b_proj, low, mixer.num_heads * mixer.head_dim), mixer.num_heads)
        if position < start:
            continue
        keys = [(k - first, mixer.span.sees(position, k)) for k in range(max(first, start - reach(mixer.span)), end)]
        if mixer.entries:
            keys += [(len(near.keys) + k, mixer.entries.sees(position, k)) for k in range(len(far))]
        keys = [(key, seen) for key, seen in keys if seen or place.kernel == "dense"]
        mixed = attend(place, query, [both], [key for key, _ in keys], [seen for _, seen in keys])
        groups = enumerate(split(join(mixed), mixer.o_groups))
        lows = [place.project(Term.o_a_proj, group, mixer.o_lora_rank, g) for g, group in groups]
        out.append(place.project(Term.o_b_proj, join(lows), len(row)))
    return out


def pooled(new: list[Vector], ratio: int, width: int, place: Place, *, overlap: bool) -> list[Vector]:
    """The entries that `new` rows complete, one for every `ratio` tokens, each `width` wide.

    A row holds values, then weights: of the entry of its own tokens, with `overlap` of the next entry
    first. An entry is the sum of values by softmax weights, channel by channel: nothing that counts.
    Rows that a later entry needs wait in the cache.
    """
    rows = place.cache.waiting.get(place.site, []) + new
    left = place.run.past % ratio
    start = len(rows) - len(new) - left
    entries = []
    for at in range(start, len(rows) - ratio + 1, ratio):
        own, half = rows[at : at + ratio], len(rows[0]) // 2
        parts = [(row[half - width : half], row[-width:]) for row in own]
        if overlap:
            parts += [(row[:width], row[half : half + width]) for row in rows[max(0, at - ratio) : at]]
        channels = range(width)
        shares = [softmax([weights[c] for _, weights in parts]) for c in channels]
        entries.append([sum(s * values[c] for s, (values, _) in zip(shares[c], parts, strict=True)) for c in channels])
    if place.run.keep:
        place.cache.waiting[place.site] = rows[-(ratio + (left + len(new)) % ratio) :]
    return entries
