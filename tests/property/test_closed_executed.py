"""What the formula says is what happens: closed = executed in every cell, and outputs do not depend on the cache."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, chunked, conversation, edited, prefix_hit, uncached
from kvtally.core.span import KERNELS
from kvtally.core.tally import compare
from kvtally.pure import count_closed
from kvtally.pure.count_executed import Execution, execute, largest_difference
from strategies import decoders, latents, mlps, pass_lists

kernels = st.sampled_from(KERNELS)

# Cached and uncached runs make the same sums in the same order, so they differ by nothing at all in most
# runs; absorbed and expanded latents order them differently. A sum of n products is off by at most about
# n * 2**-53 of its terms: with fewer than 100 products in a row and a dozen in depth that stays far below
# 1e-9 of the largest output, while a token, position or head mixed up changes outputs in the first digits.
TOLERANCE = 1e-9


def alike(a: Execution, b: Execution) -> bool:
    largest = max(abs(v) for row in (*a.outputs, *b.outputs) for v in row)
    return largest_difference(a, b) <= TOLERANCE * max(largest, 1.0)


@settings(max_examples=600, deadline=None)
@given(decoder=decoders(), passes=pass_lists(), kernel=kernels)
def test_closed_is_executed(decoder: Decoder, passes: tuple[Pass, ...], kernel: str) -> None:
    formula = count_closed.count(decoder, passes, kernel=kernel)
    happened = execute(decoder, passes, kernel=kernel)
    comparison = compare(formula, happened.tally)
    assert str(comparison).startswith("agree: "), comparison
    assert happened.tally.road == "executed"
    assert len(happened.outputs) == sum(p.times for p in passes if p.logits)


@settings(max_examples=150, deadline=None)
@given(
    decoder=decoders(),
    lengths=st.tuples(st.integers(1, 7), st.integers(1, 4)),
    data=st.data(),
    kernel=kernels,
    seed=st.integers(0, 9),
)
def test_outputs_do_not_depend_on_the_cache(
    decoder: Decoder, lengths: tuple[int, int], data: st.DataObject, kernel: str, seed: int
) -> None:
    prompt, new = lengths
    at = data.draw(st.integers(0, prompt - 1), label="at")
    piece = data.draw(st.integers(1, 4), label="piece")
    without = execute(decoder, uncached(prompt, new), seed=seed)
    assert without.positions == tuple(range(prompt - 1, prompt + new - 1))
    lists = {
        "lesson": uncached(prompt, new, loop="lesson"),
        "cached": cached(prompt, new),
        "chunked": chunked(prompt, new, piece),
        "edited": edited(prompt, at, new),
        "edited after cached": (*cached(prompt, new), *edited(prompt, at, new)),
        "prefix hit": prefix_hit(prompt, at, new),
        "cached, then not kept": (*cached(prompt, new), Pass(new=1, past=prompt - 1, keep=False, times=new)),
    }
    for name, passes in lists.items():
        run = execute(decoder, passes, kernel=kernel, seed=seed)
        assert set(run.positions) == set(without.positions), name
        assert alike(run, without), name


@settings(max_examples=50, deadline=None)
@given(
    decoder=decoders(),
    turns=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
    kernel=kernels,
)
def test_a_carried_conversation_says_what_a_resent_one_says(
    decoder: Decoder, turns: list[tuple[int, int]], kernel: str
) -> None:
    carried = execute(decoder, conversation(turns, carried=True), kernel=kernel)
    resent = execute(decoder, conversation(turns, carried=False), kernel=kernel)
    assert carried.positions == resent.positions
    assert alike(carried, resent)


@settings(max_examples=50, deadline=None)
@given(mixer=latents, mlp=mlps, depth=st.integers(1, 2), passes=pass_lists())
def test_absorbed_latents_give_what_expanded_ones_give(
    mixer: LatentAttention, mlp: Mlp | Experts | None, depth: int, passes: tuple[Pass, ...]
) -> None:
    per_head = mixer.per_head
    runs = [
        execute(
            Decoder(
                hidden_size=5,
                vocab_size=4,
                layers=(Layer(mixer=replace(mixer, absorbed=absorbed, per_head=per_head and not absorbed), mlp=mlp),)
                * depth,
            ),
            (*passes, Pass(new=2)),  # one pass at least makes logits
        )
        for absorbed in (True, False)
    ]
    assert alike(*runs)
