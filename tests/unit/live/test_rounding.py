"""The rounded pass: zero where nothing is rounded, the same whatever the calls, on every kind of cache."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from kvtally.core.errors import InputError
from kvtally.core.rounded import Rounded
from kvtally.live import RoundingCache, build, round_cache
from kvtally.live.adapter import of_transformers
from kvtally.live.harness import special_tokens, token_ids
from kvtally.live.rounding import round_caches
from kvtally.live.rounding_cache import kept
from kvtally.live.schemes import rounded, scheme
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk
from kvtally.pure.config import read_config
from kvtally.pure.size import size

KINDS = {  # what the cache of each keeps
    "gpt2": "dense",
    "llama": "GQA",
    "gemma2": "sliding",
    "deepseek_v3": "MLA",
    "gemma3n_text": "shared KV",
    "qwen3_next": "hybrid state",
    "bart": "encoder-decoder",
    "static": "static cache",
}
TOKENS = 41


def tiny(name: str) -> Any:
    return scaled(build(shrunk(name), device="cpu"))


def ids_of(model: Any, tokens: int = TOKENS) -> Any:
    config = model.config.get_text_config(decoder=True)
    return token_ids(config.vocab_size, special_tokens(model.config, config))(tokens)


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


@pytest.mark.parametrize("name", KINDS, ids=KINDS.values())
def test_every_kind_of_cache(name: str) -> None:
    from transformers import StaticCache

    model = tiny("llama" if name == "static" else name)
    make = None if name != "static" else lambda: StaticCache(config=model.config, max_cache_len=TOKENS + 3)
    ways = [kept("float32"), kept("int8"), kept("int4"), kept(k_dtype="int4"), kept(v_dtype="int4")]
    same, int8, int4, k, v = round_caches(model, ids_of(model), ways, make_cache=make)
    assert same.agreement.verdict == "same" and same.max_abs == same.kl_mean == same.part("k") == same.part("v") == 0
    assert int8.agreement.verdict == int4.agreement.verdict == "LOSSY" and not int4.within
    assert 0 < int8.kl_mean < int4.kl_mean and int8.agreement.error < int4.agreement.error
    for part in ("k", "v"):
        assert 0 < int8.part(part) < int4.part(part) < 0.2
    parts = [{s.part for s in r.stored} for r in (int4, k, v)]
    cross = {"cross k", "cross v"} if name == "bart" else set()
    assert parts == [{"k", "v"} | cross, {"k"} | cross & {"cross k"}, {"v"} | cross & {"cross v"}]
    writers = {s.layer for s in int4.stored if s.part == "k"}
    if name == "gemma3n_text":  # the last layers read what others keep
        assert writers < set(range(model.config.num_hidden_layers))
    if name == "qwen3_next":
        kinds = model.config.layer_types
        assert writers == {i for i, kind in enumerate(kinds) if kind == "full_attention"} < set(range(len(kinds)))


def alike(left: Rounded, right: Rounded) -> None:
    """The same differences at every position, to a share of the largest.

    Noise of float32 passes flips a few roundings, above all of scales to fp16, each worth some thousandths of the
    difference. A token that reads its own K and V exactly is worth all of it: position 0 would not differ at all.
    """
    for a, b in zip(left.agreement.steps, right.agreement.steps, strict=True):
        assert b.max_abs == pytest.approx(a.max_abs, abs=0.05 * left.max_abs)


@pytest.mark.parametrize("name", ["llama", "deepseek_v3"])
@pytest.mark.parametrize(
    "given",
    [{"dtype": "int4"}, {"dtype": "int8", "residual": 6}, {"k_dtype": "int4", "axis": "channel", "group": 32}],
    ids=["by token", "residual", "by channel"],
)
def test_the_size_of_the_calls_changes_nothing(name: str, given: dict[str, Any]) -> None:
    model = tiny(name)
    whole, *others = [round_cache(model, ids_of(model), chunk=n, **given) for n in (TOKENS, 7, 1)]
    for other in others:
        alike(whole, other)
        assert other.bytes_kept == whole.bytes_kept


@pytest.mark.parametrize("calls", [[TOKENS], [7, 20, 1, 13], [1] * TOKENS], ids=str)
@pytest.mark.parametrize(
    ("given", "part", "done"),
    [
        ({"dtype": "int4"}, "k", TOKENS),
        ({"dtype": "int4"}, "v", TOKENS),
        ({"dtype": "int8", "residual": 6}, "v", 36),
        ({"dtype": "int4", "axis": "channel", "group": 32}, "k", 32),
        ({"dtype": "int4", "axis": "channel", "group": 32}, "v", TOKENS),
        ({"k_dtype": "int4", "axis": "channel", "group": 32}, "v", 0),
    ],
)
def test_the_first_layer_keeps_what_it_was_given_rounded(
    llama: Any, calls: list[int], given: dict[str, Any], part: str, done: int
) -> None:
    """Its K and V do not depend on any rounding before it: what is kept is known to the bit."""
    from transformers import DynamicCache

    ids, held = ids_of(llama, TOKENS + 1), []
    for cache in (DynamicCache(config=llama.config), RoundingCache(DynamicCache(config=llama.config), **given)):
        with torch.no_grad():
            for start, end in pairwise([0, *(sum(calls[: k + 1]) for k in range(len(calls))), TOKENS + 1]):
                llama(ids[:, start:end], cache=cache)
        layer = cache.layers[0]
        held.append((layer.keys if part == "k" else layer.values)[:, :, :TOKENS])
    exact, found = held
    axis = given.get("axis", "token") if part == "k" else "token"
    how = scheme(
        "int8" if given.get("dtype") == "int8" else "int4", **({"group": 32, "axis": axis} if "group" in given else {})
    )
    if done:
        assert torch.equal(found[:, :, :done], rounded(how, exact[:, :, :done]))
        assert not torch.equal(found[:, :, :done], exact[:, :, :done])
    assert torch.equal(found[:, :, done:], exact[:, :, done:])


def test_by_channel_in_a_sliding_window_that_is_too_small_is_refused() -> None:
    model = tiny("gemma2")
    with pytest.raises(InputError, match=r"keeps \d+ tokens and K is rounded in groups of 32"):
        round_cache(model, ids_of(model), k_dtype="int4", axis="channel", group=32)


def test_blocks_in_a_sliding_window_and_in_a_static_cache_are_where_they_belong() -> None:
    """Mistral with a window: the dynamic cache drops tokens, the static one rolls; both read alike, call by call."""
    from transformers import DynamicCache, StaticCache

    config = shrunk("mistral")
    config.sliding_window, config.head_dim = 11, 8
    model = scaled(build(config, device="cpu"))
    found = [
        round_cache(model, ids_of(model), dtype="int4", residual=residual, chunk=chunk, make_cache=make)
        for residual, chunk in ((5, TOKENS), (5, 2), (5, 1))
        for make in (
            lambda: DynamicCache(config=model.config),
            lambda: StaticCache(config=model.config, max_cache_len=TOKENS),
        )
    ]
    for other in found[1:]:
        alike(found[0], other)
    assert found[0].max_abs > 0.01


def test_recurrent_states_are_rounded_when_asked_and_named_apart() -> None:
    model = tiny("bamba")
    without = round_cache(model, ids_of(model), dtype="bf16")
    found = round_cache(model, ids_of(model), state_dtype="bf16", chunk=5)
    assert {s.part for s in without.stored} == {"k", "v"} and without.conventions["states"] == "exact"
    assert {s.part for s in found.stored} == {"state"} and found.part("state") > 0 and not found.within
    assert found.conventions["states"] == "bf16, once a call"
    cache = RoundingCache(of_transformers(model).fresh().cache, state_dtype="bf16")
    with torch.no_grad():
        model(ids_of(model), cache=cache)
    states = [s for layer in cache.layers for s in getattr(layer, "recurrent_states", {}).values() if s is not None]
    assert states and all(torch.equal(s, s.bfloat16().float()) for s in states)


def test_generate_chooses_what_the_rounded_pass_prefers(llama: Any) -> None:
    from transformers import DynamicCache

    prompt, new = ids_of(llama, 9), 12
    out = llama.generate(
        prompt, cache=RoundingCache(DynamicCache(config=llama.config), dtype="int2"), max_new_tokens=new,
        min_new_tokens=new, do_sample=False,
    )  # fmt: skip
    again = round_cache(llama, out, dtype="int2", chunk=4)
    chosen = [s.token_right for s in again.agreement.steps]
    assert chosen[8 : 8 + new] == out[0, 9:].tolist()
    exact = llama.generate(prompt, max_new_tokens=new, min_new_tokens=new, do_sample=False)
    assert not torch.equal(out, exact)  # 2 bits are too few for this model


def test_a_copy_of_a_rounding_cache_is_one_of_its_own(llama: Any) -> None:
    import copy

    from transformers import DynamicCache

    cache = RoundingCache(DynamicCache(config=llama.config), dtype="int8", residual=4)
    with torch.no_grad():
        llama(ids_of(llama, 10), cache=cache)
        other = copy.deepcopy(cache)
        llama(ids_of(llama, 11)[:, 10:], cache=other)
    assert (cache.get_seq_length(), other.get_seq_length()) == (10, 11)
    assert isinstance(other, RoundingCache) and isinstance(other, DynamicCache)
    assert not torch.equal(cache.layers[0].keys[:, :, :8], other.layers[0].keys[:, :, :8])  # rounded in the copy alone


def test_what_is_cropped_and_written_again_is_rounded_again(llama: Any) -> None:
    from transformers import DynamicCache

    ids, held = ids_of(llama, 30), []
    for crop in (False, True):
        cache = RoundingCache(DynamicCache(config=llama.config), dtype="int8", residual=8)
        with torch.no_grad():
            llama(ids[:, :20], cache=cache)
            if crop:
                llama(ids[:, 5:12], cache=cache)
                cache.crop(-7)
            llama(ids[:, 20:29], cache=cache)
            llama(ids[:, 29:], cache=cache)
        held.append(cache.layers[0].keys)
    assert torch.equal(*held)


def test_the_model_is_left_as_it_was_found() -> None:
    model = tiny("llama").to(torch.bfloat16).train()
    before = {name: p.data_ptr() for name, p in model.named_parameters()}
    found = round_cache(model, ids_of(model, 12), dtype="int8")
    assert found.agreement.precision == "float32"
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == before
    assert model.training and all(p.dtype == torch.bfloat16 for p in model.parameters())


@pytest.mark.parametrize("name", ["llama", "gemma2", "deepseek_v3", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bf16", "fp8_e4m3", "int8", "int4"])
def test_bytes_are_those_of_size(name: str, dtype: str) -> None:
    model = tiny(name)
    found = round_cache(model, ids_of(model, 10), dtype=dtype)
    decoder = read_config(model.config.to_dict())
    assert found.bytes_kept == size(decoder, 10, dtype=dtype).bytes_held
    assert found.bytes_exact == size(decoder, 10, dtype="bf16").bytes_held
    mixed = round_cache(model, ids_of(model, 10), k_dtype=dtype, v_dtype="bf16")
    assert mixed.bytes_kept == size(decoder, 10, k_dtype=dtype, v_dtype="bf16").bytes_held


def test_bytes_of_tokens_that_wait_for_their_group(llama: Any) -> None:
    found = round_cache(llama, ids_of(llama, 41), k_dtype="int4", axis="channel", group=32)
    config = llama.config
    rows = config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    # 32 tokens of a channel: 16 bytes of 4 bits, a scale and a zero-point of 2 each; 9 tokens of K at 2 bytes; V
    assert found.bytes_kept == rows * (16 + 4 + 9 * 2 + 41 * 2)


def test_what_cannot_be_rounded_is_said() -> None:
    mamba, llama = tiny("mamba"), tiny("llama")
    with pytest.raises(InputError, match="given no K and V"):
        round_cache(mamba, ids_of(mamba, 9), dtype="bf16")
    with pytest.raises(InputError, match="MusicgenForCausalLM reads a row of ids for each codebook"):
        round_cache(tiny("musicgen"), [1, 2], dtype="bf16")
    with pytest.raises(InputError, match="`ids` reach from 1 to 999,999, expected 0 to"):
        round_cache(llama, [1, 999_999], dtype="bf16")
    with pytest.raises(InputError, match="is a dict, expected a transformers model"):
        round_cache({}, [1, 2], dtype="bf16")
    with pytest.raises(InputError, match="no type is given"):
        round_cache(llama, [1, 2])
    with pytest.raises(InputError, match="a list, which has no `update`"):
        RoundingCache([], dtype="int8")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"v_dtype": "int4", "axis": "channel", "group": 32}, "K is exact, expected a type for K"),
        ({"k_dtype": "int4", "axis": "channel", "group": 32, "residual": 40}, "expected whole groups"),
        ({"dtype": "int4", "residual": -1}, "`residual` is -1"),
        ({"dtype": "bf16", "group": 32}, "was asked for group 32"),
    ],
)
def test_ways_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        kept(**given)
