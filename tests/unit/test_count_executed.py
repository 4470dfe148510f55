"""The executed road by hand: exact counts of tiny runs, what the cache holds, what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from kvtally.core.decoder import Decoder, Layer, lesson
from kvtally.core.errors import InputError
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, edited, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure import count_executed
from kvtally.pure.count_executed import execute, largest_difference
from kvtally.pure.executed_layer import Place, Weights, attend, feed, mix, norm, silu
from kvtally.pure.kv_cache import Head, KVCache
from kvtally.pure.meter import Meter

# 3 wide; 4 query heads of width 2 over 2 KV heads, values 1 wide; an MLP 5 wide; 7 symbols
TINY = Decoder(
    hidden_size=3,
    vocab_size=7,
    layers=(Layer(mixer=Attention(num_heads=4, num_kv_heads=2, head_dim=2, v_head_dim=1), mlp=Mlp(width=5)),),
)


def filled(decoder: Decoder, passes: tuple[Pass, ...]) -> KVCache:
    cache = KVCache()
    for group in passes:
        for p in group.each():
            count_executed._run(decoder, p, cache, Meter(), Weights(0), kernel="causal")
    return cache


def place(site: tuple[int, str] = (0, "")) -> Place:
    return Place(
        run=Pass(new=1), kernel="causal", attending=1, meter=Meter(), weights=Weights(0),
        cache=KVCache(), made={}, site=site, slot=site,
    )  # fmt: skip


def test_two_tokens_by_hand() -> None:
    tally = execute(TINY, cached(1, 2)).tally
    per_token = {
        Term.q_proj: 3 * 4 * 2,
        Term.k_proj: 3 * 2 * 2,
        Term.v_proj: 3 * 2 * 1,
        Term.o_proj: 4 * 1 * 3,
        Term.gate_proj: 3 * 5,
        Term.up_proj: 3 * 5,
        Term.down_proj: 5 * 3,
    }
    pairs = {"prefill": 1, "decode": 2}
    for phase, seen in pairs.items():
        for term, macs in per_token.items():
            assert tally.macs[phase, 0, term] == macs
        assert tally.macs[phase, 0, Term.qk] == 4 * 2 * seen
        assert tally.macs[phase, 0, Term.pv] == 4 * 1 * seen
        assert tally.macs[phase, None, Term.lm_head] == 3 * 7
        assert tally.kv[phase, 0, "k_write"] == 2 * 2
        assert tally.kv[phase, 0, "v_write"] == 2 * 1
    assert tally.total == 2 * (sum(per_token.values()) + 21) + 3 * (8 + 4)
    assert tally.kv["decode", 0, "k_read"] == 2 * 2
    assert tally.kv["decode", 0, "v_read"] == 2 * 1
    assert ("prefill", 0, "k_read") not in tally.kv
    assert tally.comparisons == {("prefill", 0): 1, ("decode", 0): 2}
    assert tally.states == 2


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_the_lesson_on_a_small_copy(n: int) -> None:
    triangle = n * (n + 1) // 2
    on = execute(lesson(4), cached(1, n))
    off = execute(lesson(4), uncached(1, n, loop="lesson"))
    assert (on.tally.states, off.tally.states) == (n, triangle)
    assert (on.tally.pairs, off.tally.pairs) == (triangle, triangle)
    for term in (Term.q_proj, Term.k_proj, Term.v_proj):
        assert on.tally.by("term")[term] == 4 * 4 * n
        assert off.tally.by("term")[term] == 4 * 4 * triangle
    for term in (Term.qk, Term.pv):
        assert on.tally.by("term")[term] == off.tally.by("term")[term] == 4 * triangle
    assert len(on.outputs) == len(off.outputs) == n
    assert largest_difference(on, off) < 1e-12  # the same sums in the same order, of terms of size 1


def test_ten_tokens_project_three_matrices_fifty_five_times() -> None:
    tally = execute(lesson(4), uncached(1, 10, loop="lesson")).tally
    assert tally.total == 3 * 16 * 55 + 2 * 4 * 55


def test_forward_loop_compares_every_old_token_again() -> None:
    assert execute(lesson(1), uncached(1, 100)).tally.pairs == 171_700
    assert execute(lesson(1), uncached(1, 100), kernel="dense").tally.pairs == 338_350


def test_the_cache_holds_keys_and_values_and_no_queries() -> None:
    cache = filled(TINY, cached(3, 4))
    assert cache.length == 3 + 3  # the token generated last was never fed back
    heads = cache.heads[0, "mixer"]
    assert len(heads) == 2  # one for each KV head, not for each of the 4 query heads
    for head in heads:
        assert [len(key) for key in head.keys] == [2] * 6
        assert [len(value) for value in head.values] == [1] * 6
    assert not cache.source
    assert not cache.states
    assert Head.__slots__ == ("keys", "values")
    held = sum(len(vector) for head in heads for vector in (*head.keys, *head.values))
    assert held == TINY.held(6)


def test_query_heads_share_kv_heads_in_groups_of_neighbours() -> None:
    """With one token in sight its share is 1, so each head gives the value of its group's KV head."""
    heads = [Head([[1.0, 2.0]], [[5.0]]), Head([[3.0, 4.0]], [[6.0]])]
    assert attend(place(), [[1.0, 1.0]] * 4, heads, [0], [True]) == [[5.0], [5.0], [6.0], [6.0]]


def test_scores_are_shared_out_by_softmax_over_the_root_of_the_width() -> None:
    head = Head([[1.0, 1.0], [2.0, 3.0], [9.0, 9.0]], [[1.0], [10.0], [100.0]])
    first, second = math.exp(2 / math.sqrt(2)), math.exp(5 / math.sqrt(2))
    ((mixed,),) = attend(place(), [[1.0, 1.0]], [head], [0, 1, 2], [True, True, False])
    assert mixed == pytest.approx((first + 10 * second) / (first + second), rel=1e-12)  # a handful of roundings


SIGHTED = {
    "attention": Attention(num_heads=2, num_kv_heads=1, head_dim=2),
    "latent": LatentAttention(num_heads=2, kv_lora_rank=3, qk_rope_head_dim=1, qk_nope_head_dim=2, v_head_dim=2),
    "convolution": Recurrent(matrices=(), conv_channels=3, conv_kernel=4),
    "state": Recurrent(matrices=(), num_heads=2, key_dim=2, value_dim=3),
}
SIGHTED["absorbed"] = replace(SIGHTED["latent"], absorbed=True)
BLIND = {
    "window of one": replace(SIGHTED["attention"], window=1),
    "chunk of three": replace(SIGHTED["attention"], chunk=3),
    "convolution of three taps": replace(SIGHTED["convolution"], conv_kernel=3),
}


@pytest.mark.parametrize("name", [*SIGHTED, *BLIND])
def test_a_row_depends_on_the_rows_it_sees_and_no_others(name: str) -> None:
    rows = [[1.0, -0.5, 0.3], [0.2, 0.7, -1.0], [0.4, 0.4, 1.1], [-0.9, 0.1, 0.6]]
    other = [[-1.0, 0.8, 0.1], *rows[1:]]
    mixer, at = (SIGHTED | BLIND)[name], replace(place(), run=Pass(new=4), attending=4)
    one, two = mix(mixer, rows, at), mix(mixer, other, replace(at, cache=KVCache(), made={}))
    assert (one[3] != two[3]) == (name in SIGHTED)
    assert one[0] != two[0]


def test_each_kv_head_keeps_its_own_part_of_the_projections() -> None:
    one, other = filled(TINY, cached(3, 1)).heads[0, "mixer"]
    row = norm(count_executed._embed(2, TINY, Weights(0)))
    at = place(site=(0, "mixer"))
    assert one.keys[2] + other.keys[2] == at.project(Term.k_proj, row, 4)
    assert one.values[2] + other.values[2] == at.project(Term.v_proj, row, 2)


def test_old_keys_and_values_do_not_change() -> None:
    before, after = filled(TINY, cached(3, 1)), filled(TINY, cached(3, 4))
    for old, new in zip(before.heads[0, "mixer"], after.heads[0, "mixer"], strict=True):
        assert new.keys[:3] == old.keys
        assert new.values[:3] == old.values


def test_a_window_keeps_one_token_less_than_it_sees() -> None:
    windowed = lesson(4).layers[0].mixer
    decoder = replace(lesson(4), layers=(Layer(mixer=replace(windowed, window=3)),))
    (head,) = filled(decoder, cached(5, 4)).heads[0, "mixer"]
    (whole,) = filled(lesson(4), cached(5, 4)).heads[0, "mixer"]
    assert head.keys == whole.keys[-2:]
    assert head.values == whole.values[-2:]


def test_a_shared_slot_keeps_what_its_furthest_reader_sees() -> None:
    short = Attention(num_heads=1, num_kv_heads=1, head_dim=2, window=2)
    reader = Layer(mixer=replace(short, num_heads=3, window=4), reads=0)
    cache = filled(Decoder(hidden_size=3, vocab_size=0, layers=(Layer(mixer=short), reader)), cached(6, 1))
    assert list(cache.heads) == [(0, "mixer")]
    assert len(cache.heads[0, "mixer"][0].keys) == 3


def test_latent_attention_keeps_one_latent_and_no_values() -> None:
    mixer = LatentAttention(num_heads=2, kv_lora_rank=3, qk_rope_head_dim=1, qk_nope_head_dim=2, v_head_dim=5)
    (head,) = filled(Decoder(hidden_size=3, vocab_size=0, layers=(Layer(mixer=mixer),)), cached(4, 1)).heads[0, "mixer"]
    assert [len(latent) for latent in head.keys] == [4] * 4
    assert head.values == [[]] * 4


def test_crop_forgets_the_newest_and_says_where_it_cannot() -> None:
    cache = filled(TINY, cached(6, 1))
    assert cache.crop(2)
    assert cache.length == 2
    assert cache.heads == filled(TINY, cached(2, 1)).heads
    windowed = replace(TINY, layers=(Layer(mixer=Attention(num_heads=1, num_kv_heads=1, head_dim=2, window=3)),))
    assert not filled(windowed, cached(6, 1)).crop(2)
    state = Recurrent(matrices=(), num_heads=1, key_dim=2, value_dim=3)
    assert not filled(replace(TINY, layers=(Layer(mixer=state),)), cached(6, 1)).crop(2)


def test_the_router_takes_the_expert_with_the_highest_score() -> None:
    row, at = [1.0, -0.5, 0.3], place()
    scores = at.project(Term.router, row, 4)
    best = scores.index(max(scores))
    up = at.project(Term.up_proj, row, 5, best)
    expected = at.project(Term.down_proj, [silu(v) for v in up], 3, best)
    assert feed(Experts(num_experts=4, per_token=1, width=5, gated=False), row, at) == expected


def test_a_pass_that_is_not_kept_reads_the_cache_and_leaves_it() -> None:
    tally = execute(TINY, (Pass(new=2, past=3, keep=False, times=2),)).tally
    assert tally.kv == {("prefill", 0, "k_read"): 2 * 3 * 4, ("prefill", 0, "v_read"): 2 * 3 * 2}
    assert tally.states == 2 + 3


def test_keys_of_an_encoder_are_made_once() -> None:
    cross = CrossAttention(num_heads=2, num_kv_heads=1, head_dim=2, source=5)
    decoder = Decoder(hidden_size=3, vocab_size=0, layers=(Layer(cross=cross),))
    tally = execute(decoder, cached(2, 3)).tally
    assert tally.by("term")[Term.cross_k_proj] == 5 * 3 * 2
    assert tally.by("term")[Term.cross_q_proj] == 4 * 3 * 4
    assert tally.kv["prefill", 0, "k_write"] == 5 * 2
    assert tally.kv["decode", 0, "k_read"] == 2 * 5 * 2


def test_every_query_sees_every_source_token_but_no_token_after_it() -> None:
    """The mask is causal among the decoder's own tokens, and attention to an encoder has none."""
    own = execute(lesson(4), (Pass(new=5, logits=0),)).tally
    cross = CrossAttention(num_heads=1, num_kv_heads=1, head_dim=4, source=5)
    other = execute(replace(lesson(4), layers=(Layer(cross=cross),)), (Pass(new=5, logits=0),)).tally
    assert (own.pairs, other.pairs) == (5 * 6 // 2, 5 * 5)


@pytest.mark.parametrize("kernel", ["causal", "dense"])
def test_a_later_token_changes_no_earlier_row(kernel: str) -> None:
    def rows(new: int) -> list[list[float]]:
        p = Pass(new=new, logits=new)
        return count_executed._run(TINY, p, KVCache(), Meter(), Weights(0), kernel=kernel)

    assert rows(9)[:4] == rows(4)


def test_an_edit_computes_from_the_edit_on() -> None:
    tally = execute(TINY, edited(6, 4, 1)).tally
    assert tally.states == 2
    assert tally.kv["prefill", 0, "k_read"] == 4 * 4


def test_positions_and_seeds_show_in_the_outputs() -> None:
    one, two = execute(TINY, cached(4, 3), seed=1), execute(TINY, cached(4, 3), seed=2)
    assert largest_difference(one, two) > 1e-3
    assert one.outputs[0] != one.outputs[1]
    assert one.positions == (3, 4, 5)
    assert execute(TINY, cached(4, 3), seed=1) == one


def test_no_logits_no_output() -> None:
    run = execute(TINY, (Pass(new=4, logits=0), Pass(new=2, past=4, logits=2)))
    assert run.positions == (5,)
    assert len(run.outputs[0]) == 7
    assert run.tally.macs["prefill", None, Term.lm_head] == 2 * 3 * 7


def test_the_last_hidden_state_stands_in_for_missing_logits() -> None:
    (row,) = execute(lesson(4), (Pass(new=2),)).outputs
    assert len(row) == 4
    assert math.isclose(sum(v * v for v in row), 4, rel_tol=1e-4)  # normed: a mean square of 1, bar the 1e-6 in it


def test_attention_is_a_mean_of_the_values_it_sees() -> None:
    """One head that is as wide as the row, no output projection: each output is row + a mix of values."""
    p = Pass(new=1, logits=1)
    cache = filled(lesson(4), (p,))
    (row,) = execute(lesson(4), (p,)).outputs
    embedded = count_executed._embed(0, lesson(4), Weights(0))
    (value,) = cache.heads[0, "mixer"][0].values  # one token sees itself alone: its share is 1
    summed = [a + b for a, b in zip(embedded, value, strict=True)]
    size = math.sqrt(sum(v * v for v in summed) / 4)
    assert row == pytest.approx([v / size for v in summed], rel=1e-5)  # 1e-6 under the norm's root


def test_more_than_the_limit_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError) as refused:
        execute(lesson(64), cached(1, 10**12))
    text = str(refused.value)
    # 3 * 64 * 64 a token, 2 * 64 a pair
    expected = 3 * 64 * 64 * 10**12 + 2 * 64 * (10**12 * (10**12 + 1) // 2)
    assert text == (
        f"these passes take up to {expected:,} multiplications, expected at most 100,000,000 to execute them\n\n"
        "hint: ask for fewer tokens, or execute `decoder.shrunk()`"
    )


def test_many_tokens_of_no_work_are_refused_too() -> None:
    with pytest.raises(InputError, match="multiplications"):
        execute(Decoder(hidden_size=3, vocab_size=0, layers=(Layer(),)), cached(1, 10**12))


def test_filling_a_past_counts_towards_the_limit_but_not_in_the_tally() -> None:
    with pytest.raises(InputError, match="multiplications"):
        execute(lesson(64), (Pass(new=1, past=10**6),))
    assert execute(lesson(4), (Pass(new=1, past=9),)).tally.states == 1


def test_the_lesson_at_full_size_is_not_refused() -> None:
    loops = (uncached(1, 100, loop="lesson"), cached(1, 100))
    for passes in loops:
        count_executed._refuse_if_long(lesson(), passes, "dense")


def test_more_logits_than_rows_that_attend_is_refused() -> None:
    with pytest.raises(InputError, match="`logits` is 2, expected an integer of at least 0 and at most 1"):
        Pass(new=3, attending=1, logits=2)


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(InputError, match="`kernel` is 'flash'; known: `causal`, `dense`"):
        execute(TINY, cached(1, 1), kernel="flash")


def test_outputs_of_other_positions_are_not_compared() -> None:
    with pytest.raises(InputError, match=r"positions \[2\] and \[3\], expected some in common"):
        largest_difference(execute(TINY, cached(3, 1)), execute(TINY, cached(4, 1)))


def test_sharing_with_other_kv_heads_is_refused() -> None:
    two = Attention(num_heads=2, num_kv_heads=2, head_dim=2)
    four = Attention(num_heads=4, num_kv_heads=4, head_dim=1)
    with pytest.raises(InputError, match=r"`layers\[1\].reads` is 0, whose K and V have other sizes"):
        Decoder(hidden_size=3, vocab_size=0, layers=(Layer(mixer=two), Layer(mixer=four, reads=0)))


def test_a_mixer_without_an_executed_body_is_named() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Hyena(Recurrent):
        """A mixer of someone's own, not derived from a known one as far as bodies go."""

    class Unknown:
        def __getattr__(self, name: str) -> object:
            return getattr(Recurrent(matrices=()), name)

    execute(replace(TINY, layers=(Layer(mixer=Hyena(matrices=())),)), cached(1, 1))
    with pytest.raises(InputError, match="the mixer is a `Unknown`, which has no executed body; known: `Attention`"):
        execute(replace(TINY, layers=(Layer(mixer=Unknown()),)), cached(1, 1))  # type: ignore[arg-type]
