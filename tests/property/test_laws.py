"""Laws of counting, over random decoders and lengths beyond what could be run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvtally import (
    Attention,
    CompressedAttention,
    Decoder,
    LatentAttention,
    Layer,
    Pass,
    Tally,
    Term,
    cached,
    chunked,
    compare,
    conversation,
    count,
    edited,
    prefix_hit,
    uncached,
)
from kvtally.core.mixer import Mixer
from strategies import attentions, decoders, pass_lists

lengths = st.integers(1, 12) | st.integers(1, 10**6)
few = st.integers(1, 40)
kernels = st.sampled_from(["causal", "dense"])
law = settings(max_examples=200, deadline=None)


def work(tally: Tally) -> dict[tuple[int | None, str], int]:
    """MACs by layer and term: phases together, rows of logits apart."""
    sums: dict[tuple[int | None, str], int] = {}
    for (_, layer, term), macs in tally.macs.items():
        if term not in (Term.head_proj, Term.lm_head):
            sums[layer, term] = sums.get((layer, term), 0) + macs
    return sums


def absorbed(decoder: Decoder) -> Decoder:
    """The decoder with every latent absorbed and no mask made of values: both go over the past in each pass again."""
    expands = any(isinstance(x.mixer, LatentAttention) and not x.mixer.absorbed for x in decoder.layers)
    decoder = decoder.absorbed() if expands else decoder
    layers = tuple(
        replace(x, mixer=_unmasked(x.mixer), beside=tuple(_unmasked(m) for m in x.beside)) for x in decoder.layers
    )
    return replace(decoder, layers=layers)


def _unmasked(mixer: Mixer | None) -> Mixer | None:
    return replace(mixer, value_mask=False) if isinstance(mixer, Attention) else mixer


@given(decoders(), lengths, lengths)
@law
def test_splitting_a_pass_changes_no_causal_work(decoder: Decoder, prompt: int, new: int) -> None:
    decoder = absorbed(decoder)
    split = count(decoder, cached(prompt, new))
    whole = count(decoder, [Pass(new=prompt + new - 1, logits=0)])
    assert work(split) == work(whole)
    assert split.pairs == whole.pairs
    assert split.states == whole.states


@given(decoders(), lengths, lengths, lengths)
@law
def test_chunks_change_no_causal_work(decoder: Decoder, prompt: int, new: int, chunk: int) -> None:
    decoder = absorbed(decoder)
    one, many = count(decoder, cached(prompt, new)), count(decoder, chunked(prompt, new, chunk))
    assert one.macs == many.macs
    assert one.comparisons == many.comparisons


@given(decoders(), lengths, lengths, kernels)
@law
def test_the_cache_never_adds_work(decoder: Decoder, prompt: int, new: int, kernel: str) -> None:
    on = count(decoder, cached(prompt, new), kernel=kernel)
    off = count(decoder, uncached(prompt, new), kernel=kernel)
    for cell, macs in on.macs.items():
        assert macs <= off.macs[cell]
    for pair, pairs in on.comparisons.items():
        assert pairs <= off.comparisons[pair]


@given(decoders(), lengths, few, st.data())
@law
def test_a_prefix_hit_saves_exactly_the_prefix(decoder: Decoder, prompt: int, new: int, data: st.DataObject) -> None:
    decoder = absorbed(decoder)
    hit = data.draw(st.integers(0, prompt - 1))
    assume(not hit or not any(layer.cross for layer in decoder.layers))  # K and V of the source come with the hit
    prefix = [Pass(new=hit, logits=0)] if hit else []
    both = count(decoder, [*prefix, *prefix_hit(prompt, hit, new)])
    assert compare(replace(both, kv={}), replace(count(decoder, cached(prompt, new)), kv={})).agree
    assert edited(prompt, hit, new) == prefix_hit(prompt, hit, new)


@given(decoders(), pass_lists())
@law
def test_causal_is_at_most_dense(decoder: Decoder, passes: tuple[Pass, ...]) -> None:
    causal, dense = count(decoder, passes), count(decoder, passes, kernel="dense")
    assert causal.macs.keys() == {cell for cell in dense.macs if cell[2] is not Term.surplus}
    assert all(macs <= dense.macs[cell] for cell, macs in causal.macs.items())
    assert causal.kv == dense.kv


@given(attentions(), st.integers(1, 5), lengths)
@law
def test_causal_is_dense_when_one_token_is_new(mixer: object, hidden: int, past: int) -> None:
    # Of a chunk frameworks hold more than the mask allows; scoring twice is surplus.
    mixer = replace(mixer, chunk=None, top_k=None, block=1, differential=False)  # type: ignore[type-var]
    decoder = Decoder(hidden_size=hidden, vocab_size=3, layers=(Layer(mixer=mixer),))
    step = [Pass(new=1, past=past, phase="decode", times=past)]
    assert count(decoder, step).macs == count(decoder, step, kernel="dense").macs


@given(attentions(), st.integers(1, 5), pass_lists(), kernels, st.integers(0, 3))
@law
def test_a_window_as_long_as_the_context_is_no_window(
    mixer: object, hidden: int, passes: tuple[Pass, ...], kernel: str, longer: int
) -> None:
    full = replace(mixer, window=None, chunk=None, top_k=None, block=1)  # type: ignore[type-var]
    longest = max(p.end for p in passes) + longer
    windowed = replace(full, window=longest)
    tallies = [
        count(Decoder(hidden_size=hidden, vocab_size=0, layers=(Layer(mixer=m),)), passes, kernel=kernel)
        for m in (full, windowed)
    ]
    assert compare(*tallies).agree


@given(decoders(), few, few, kernels, st.sampled_from(["lesson", "forward"]))
@law
def test_without_a_cache_the_work_is_that_of_single_passes(
    decoder: Decoder, prompt: int, new: int, kernel: str, loop: str
) -> None:
    attending = 1 if loop == "lesson" else None
    singles = [
        Pass(new=prompt + t, phase="decode" if t else "prefill", keep=False, attending=attending) for t in range(new)
    ]
    assert compare(
        count(decoder, uncached(prompt, new, loop=loop), kernel=kernel), count(decoder, singles, kernel=kernel)
    ).agree


@given(decoders(), pass_lists(), kernels)
@law
def test_passes_in_a_row_cost_what_single_passes_cost(decoder: Decoder, passes: tuple[Pass, ...], kernel: str) -> None:
    singles = [one for p in passes for one in p.each()]
    assert compare(count(decoder, passes, kernel=kernel), count(decoder, singles, kernel=kernel)).agree


@given(decoders(), st.lists(st.tuples(few, few), min_size=1, max_size=4))
@law
def test_a_carried_conversation_computes_each_token_once(decoder: Decoder, turns: list[tuple[int, int]]) -> None:
    tokens = sum(user + generated for user, generated in turns)
    assert count(decoder, conversation(turns, carried=True)).states == tokens - 1
    resent = [
        p
        for n, (_, generated) in enumerate(turns)
        for p in cached(sum(u + g for u, g in turns[:n]) + turns[n][0], generated)
    ]
    assert compare(count(decoder, conversation(turns, carried=False)), count(decoder, resent)).agree


@given(decoders(), st.integers(1, 50))
@law
def test_the_cache_holds_what_was_written(decoder: Decoder, tokens: int) -> None:
    whole = all(mixer.tokens_held(tokens) >= tokens for layer in decoder.layers for mixer in layer.mixers[:1])
    assume(whole and all(layer.cross is None for layer in decoder.layers))
    written = count(decoder, [Pass(new=tokens)]).cells()
    windowed = any(0 < mixer.tokens_held(tokens) < tokens for x in decoder.layers for mixer in x.mixers)
    pooled = [m for x in decoder.layers for m in x.mixers if isinstance(m, CompressedAttention)]
    assume(not windowed and all(tokens <= mixer.window for mixer in pooled))  # nothing has been dropped
    assert decoder.held(tokens) == written.get("k_write", 0) + written.get("v_write", 0) + written.get("state", 0)


@given(decoders())
@law
def test_shrinking_keeps_the_pattern(decoder: Decoder) -> None:
    small = decoder.shrunk()
    assert len(small.layers) <= len(decoder.layers)
    assert {type(x.mixer) for x in small.layers} == {type(x.mixer) for x in decoder.layers}
    assert any(x.reads is not None for x in small.layers) == any(x.reads is not None for x in decoder.layers)
    assert small.shrunk() == small
