"""Arithmetic intensity against published figures, thresholds that are tight, and what batching moves."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.count_closed import count
from kvtally.pure.model import read_model
from kvtally.pure.roofline import (
    ATTENTION,
    HEAD,
    MLP,
    PROJECTIONS,
    RECURRENCE,
    Load,
    loads,
    roofline,
    scores_outgrow,
    smallest,
    whole,
)
from kvtally.pure.size import cache_types


def step(past: int) -> Pass:
    return Pass(new=1, past=past, phase="decode")


def by_work(decoder: Decoder, p: Pass, batch: int = 1) -> dict[str, Load]:
    return {load.work: load for load in loads(decoder, p, batch=batch)}


@pytest.mark.parametrize(
    ("model", "group"), [("llama-2-7b", 1), ("llama-3.1-8b", 4), ("falcon-7b", 71), ("qwen3-235b-a22b", 16)]
)
@pytest.mark.parametrize("batch", [1, 7])
def test_decode_attention_makes_as_many_flops_a_byte_as_there_are_queries_for_a_key(
    model: str, group: int, batch: int
) -> None:
    for past in (1, 999, 131_071):
        assert by_work(read_model(model), step(past), batch)[ATTENTION].intensity == group


def test_absorbed_latent_attention_makes_241_8_flops_a_byte() -> None:
    found = by_work(read_model("deepseek-v3").absorbed(), step(4095))[ATTENTION].intensity
    assert found == Fraction(2 * 128 * 1088, 576 * 2)
    assert round(float(found), 1) == 241.8


def test_flops_are_those_that_count_counts() -> None:
    for model in ("llama-3.1-8b", "gemma-3-1b", "gpt-oss-20b", "deepseek-v3"):
        decoder = read_model(model)
        for p in (Pass(new=33), step(1000)):
            assert whole(loads(decoder, p, batch=3)).flops == 3 * count(decoder, [p]).flops


def test_weights_are_read_once_a_pass_and_the_cache_once_a_sequence() -> None:
    decoder = read_model("llama-3.1-8b")
    one, many = by_work(decoder, step(500)), by_work(decoder, step(500), batch=9)
    for work in (PROJECTIONS, MLP, HEAD):
        assert many[work].weights == one[work].weights > 0
        assert many[work].intensity == 9 * one[work].intensity == 9
    assert many[ATTENTION].cache == 9 * one[ATTENTION].cache == 9 * 501 * 131_072
    parameters = 8_030_261_248 - 128_256 * 4096 - 65 * 4096  # all of the model but embedding and norms
    assert sum(load.weights for load in one.values()) == 2 * parameters


def test_experts_are_read_as_many_as_can_be_chosen() -> None:
    mlp = Experts(num_experts=8, per_token=2, width=5)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mlp=mlp),))
    expert, router = 3 * 12 * 5, 12 * 8
    read = [by_work(decoder, step(9), batch)[MLP].weights for batch in (1, 3, 4, 50)]
    assert read == [2 * (router + n * expert) for n in (2, 6, 8, 8)]


def test_a_state_is_read_and_written_and_only_written_where_nothing_was_before() -> None:
    mixer = Recurrent(matrices=((Term.in_proj, None, 40),), num_heads=3, key_dim=4, value_dim=5)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mixer=mixer),))
    assert by_work(decoder, step(9))[RECURRENCE].cache == 2 * 60 * 4
    assert by_work(decoder, Pass(new=6))[RECURRENCE].cache == 60 * 4


def test_a_layer_that_reads_anothers_k_and_v_reads_and_does_not_write() -> None:
    mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mixer=mixer), Layer(mixer=mixer, reads=0)))
    assert by_work(decoder, step(9))[ATTENTION].cache == (10 + 9) * 2 * 16 * 2


def test_a_short_convolution_moves_its_inputs() -> None:
    mixer = Recurrent(matrices=((Term.in_proj, None, 40),), conv_channels=5, conv_kernel=4)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mixer=mixer),))
    found = by_work(decoder, step(9))[RECURRENCE]
    assert (found.flops, found.cache) == (0, 2 * 3 * 5 * 2)


def test_what_is_not_kept_is_not_written() -> None:
    state = Recurrent(matrices=((Term.in_proj, None, 40),), num_heads=3, key_dim=4, value_dim=5)
    mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mixer=mixer, beside=(state,)),))
    found = by_work(decoder, Pass(new=6, past=9, keep=False))
    assert (found[ATTENTION].cache, found[RECURRENCE].cache) == (9 * 2 * 16 * 2, 60 * 4)
    assert by_work(decoder, Pass(new=6, keep=False))[RECURRENCE].cache == 0


def test_k_and_v_of_an_encoder_are_made_by_the_pass_that_starts() -> None:
    """A step reads q_proj and o_proj of both attentions; k_proj and v_proj of its own one alone."""
    mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8)
    cross = CrossAttention(num_heads=4, num_kv_heads=2, head_dim=8, source=10)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mixer=mixer, cross=cross),))
    queries, keys = 4 * 12 * 32, 2 * 12 * 16
    found = by_work(decoder, step(9))[PROJECTIONS]
    assert (found.flops, found.weights) == (2 * (queries + keys),) * 2
    first = by_work(decoder, Pass(new=6))[PROJECTIONS]
    assert (first.flops, first.weights) == (2 * (6 * (queries + keys) + 10 * keys), 2 * (queries + 2 * keys))


def test_experts_are_chosen_by_the_rows_that_attend() -> None:
    mlp = Experts(num_experts=8, per_token=2, width=5)
    decoder = Decoder(hidden_size=12, vocab_size=0, layers=(Layer(mlp=mlp),) * 2)
    router, expert = 12 * 8, 3 * 12 * 5
    found = by_work(decoder, Pass(new=3, attending=1), batch=1)[MLP]
    assert found.weights == 2 * (2 * router + (6 + 2) * expert)
    assert found.flops == 2 * (3 + 1) * (router + 2 * expert)


def test_several_passes_are_refused() -> None:
    with pytest.raises(InputError, match="`times` is 10, expected 1: every pass moves its weights again"):
        loads(read_model("gpt2"), Pass(new=1, times=10, phase="decode"))


def test_a_smaller_cache_is_read_with_fewer_bytes() -> None:
    found = loads(read_model("llama-3.1-8b"), step(99), types=cache_types("q4_0"))
    assert next(x for x in found if x.work == ATTENTION).intensity == Fraction(4 * 2 * 16, 9)


def test_thresholds_are_tight() -> None:
    decoder, ridge = read_model("llama-3.1-8b"), Fraction(295)
    found = roofline(decoder, 4096, ridge=ridge)
    assert found.batch_projections == 295  # bf16: two FLOPs for two bytes, once a sequence
    assert found.batch_whole is None  # attention stays at 4 FLOPs a byte
    shortest, context = found.prefill_whole or 0, found.cache_outgrows_weights or 0
    assert whole(loads(decoder, Pass(new=shortest))).intensity >= ridge
    assert whole(loads(decoder, Pass(new=shortest - 1))).intensity < ridge
    after, before = whole(loads(decoder, step(context))), whole(loads(decoder, step(context - 1)))
    assert after.cache > after.weights
    assert before.cache <= before.weights


def test_only_latent_attention_reaches_a_ridge() -> None:
    decoder = read_model("deepseek-v3").absorbed()
    assert roofline(decoder, 4096, ridge=Fraction(206)).batch_whole is not None  # H200
    assert roofline(decoder, 10**6, ridge=Fraction(295)).batch_whole is None  # H100 SXM
    with pytest.raises(InputError, match="`ridge` is 0, expected more than 0 FLOPs"):
        roofline(decoder, 10, ridge=Fraction(0))


@pytest.mark.parametrize("memory", [0, 1, 2, 7, 8, 9, 50 * 2**20, 228 * 1024])
def test_scores_outgrow_fast_memory_at_a_tight_length(memory: int) -> None:
    n = scores_outgrow(memory)
    assert 2 * n * n > memory >= 2 * (n - 1) ** 2


def test_the_smallest_is_found_up_to_the_most() -> None:
    assert [smallest(lambda n, k=k: n >= k, most=37) for k in (1, 2, 36, 37, 38)] == [1, 2, 36, 37, None]  # type: ignore[misc]


def test_a_decoder_of_no_work_moves_nothing() -> None:
    nothing = whole(loads(Decoder(hidden_size=4, vocab_size=0, layers=(Layer(),)), step(3)))
    assert (nothing.flops, nothing.moved, nothing.intensity) == (0, 0, 0)
    assert Mlp(width=3).projections(4)[Term.up_proj] == 12
