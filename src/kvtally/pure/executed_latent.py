"""What latent attention does to the rows of a pass, in plain Python."""

from __future__ import annotations

import math

from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.tally import Term
from kvtally.pure.executed_layer import Place, attend_back, join, mix, norm, reach, sigmoid, split
from kvtally.pure.kv_cache import Head
from kvtally.pure.meter import Vector


@mix.register
def _latent(mixer: LatentAttention, rows: list[Vector], place: Place) -> list[Vector]:
    """The cache keeps one latent a token, as the key of one KV head without values; `per_head`, all heads."""
    rank, nope, rope = mixer.kv_lora_rank, mixer.qk_nope_head_dim, mixer.qk_rope_head_dim
    numbers = range(mixer.num_heads)
    to_key = [place.weights.matrix(nope, rank, *place.site, "kv_b_proj", "key", h) for h in numbers]
    to_value = [place.weights.matrix(mixer.v_head_dim, rank, *place.site, "kv_b_proj", "value", h) for h in numbers]
    scale = 1 / math.sqrt(nope + rope)
    apply = place.meter.apply

    def latents() -> list[Head]:
        made = [place.project(Term.kv_a_proj, row, rank + rope) for row in rows]
        return expanded(made) if mixer.per_head else [Head(made, [[] for _ in made])]

    def expanded(made: list[Vector]) -> list[Head]:
        return [
            Head(
                [apply(Term.kv_b_proj, to_key[h], latent[:rank]) + latent[rank:] for latent in made],
                [apply(Term.kv_b_proj, to_value[h], latent[:rank]) for latent in made],
            )
            for h in numbers
        ]

    projected = [_latent_query(mixer, row, place) for row in rows]
    queries = [[head[: nope + rope] for head in heads] for heads in projected]
    kept, *others = place.context(latents, reach(mixer.span))
    if mixer.absorbed:
        absorb = [list(map(list, zip(*matrix, strict=True))) for matrix in to_key]
        queries = [[apply(Term.q_absorb, absorb[h], q[h][:nope]) + q[h][nope:] for h in numbers] for q in queries]
        over_latents = [Head(kept.keys, [latent[:rank] for latent in kept.keys])]
        mixed = attend_back(place, queries, over_latents, mixer.span, scale)
        mixed = [[apply(Term.v_absorb, to_value[h], row[h]) for h in numbers] for row in mixed]
    else:
        heads = [kept, *others] if mixer.per_head else expanded(kept.keys)
        mixed = attend_back(place, queries, heads, mixer.span, scale)
    values = [join(row) for row in mixed]
    if mixer.gated:
        gates = [join([head[nope + rope :] for head in heads]) for heads in projected[-place.attending :]]
        values = [[v * sigmoid(g) for v, g in zip(*pair, strict=True)] for pair in zip(values, gates, strict=True)]
    return [place.project(Term.o_proj, row, len(rows[0])) for row in values]


def _latent_query(mixer: LatentAttention, row: Vector, place: Place) -> list[Vector]:
    """For each head its query, and the gate of its value after it where there is one."""
    wide = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + (mixer.v_head_dim if mixer.gated else 0)
    term = Term.q_proj
    if mixer.q_lora_rank is not None:
        row, term = place.project(Term.q_a_proj, row, mixer.q_lora_rank), Term.q_b_proj
        row = norm(row) + row if mixer.gated else row
    return split(place.project(term, row, mixer.num_heads * wide), mixer.num_heads)
