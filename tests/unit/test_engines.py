"""What engines reserve: numbers made by hand, laws on random decoders, refusals."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.engine_llama_cpp import LlamaCppRules, cells, sliding_cells
from kvtally.pure.engine_parts import kept
from kvtally.pure.engine_vllm import Pages, VllmRules, pages
from kvtally.pure.engines import ENGINES, reserved
from kvtally.pure.size import cache_types
from strategies import decoders


def attends(**more: Any) -> Attention:
    return Attention(**{"num_heads": 6, "num_kv_heads": 2, "head_dim": 40} | more)


def of(*mixers: Any) -> Decoder:
    return Decoder(hidden_size=24, vocab_size=0, layers=tuple(Layer(mixer=mixer) for mixer in mixers))


def cut(*mixers: Any, dtype: str = "bf16", **rules: Any) -> Pages:
    return pages(of(*mixers), types=cache_types(dtype), rules=VllmRules(**rules))


FULL, SLIDES, CHUNKS = attends(), attends(window=100), attends(chunk=100)
NET = Recurrent(conv_channels=96, conv_kernel=4, num_heads=4, key_dim=10, value_dim=12)
TOKEN = 2 * 2 * 40 * 2  # bytes of K and V of a token and layer in bf16


# Kinds of layers


def test_kinds_are_told_from_facts_alone() -> None:
    cross = CrossAttention(num_heads=6, num_kv_heads=2, head_dim=40, source=9)
    layers = (*of(FULL, SLIDES, CHUNKS, NET).layers, Layer(mixer=FULL, cross=cross), Layer(mixer=SLIDES, reads=1))
    found = kept(Decoder(hidden_size=24, vocab_size=0, layers=layers))
    said = [(part.layer, part.kind, part.limit) for part in found]
    assert said == [
        (0, "full", None), (1, "sliding", 100), (2, "chunked", 100), (3, "recurrent", None), (4, "full", None),
        (4, "cross", 9),
    ]  # fmt: skip


# vLLM


def test_one_kind_is_one_group() -> None:
    p = cut(FULL, FULL, FULL)
    assert (len(p.groups), p.bytes_per_block, p.padding_layers) == (1, 3 * 16 * TOKEN, 0)
    assert p.blocks_by_group(33) == (3,)


@pytest.mark.parametrize(
    ("full", "slides", "slots", "groups", "padding"),
    [(2, 2, 2, 2, 0), (1, 5, 1, 6, 0), (2, 5, 2, 4, 1), (10, 14, 14, 2, 4), (10, 15, 10, 3, 5), (14, 10, 14, 2, 4)],
)
def test_groups(full: int, slides: int, slots: int, groups: int, padding: int) -> None:
    """As large as the smallest kind, or as the largest where that is less than 1.5 times as many."""
    p = cut(*(FULL,) * full, *(SLIDES,) * slides)
    assert (p.bytes_per_block, len(p.groups), p.padding_layers) == (slots * 16 * TOKEN, groups, padding)
    assert sum(len(group.layers) for group in p.groups) == full + slides


def test_blocks_of_a_request() -> None:
    """Window 100: 99 tokens and a batch of 45 in blocks of 16 are 9, and one more; chunk 100: 145 are 10."""
    rules = {"max_batched_tokens": 45}
    assert cut(FULL, SLIDES, **rules).blocks_by_group(1000) == (63, 10)
    assert cut(FULL, SLIDES, **rules).blocks_by_group(20) == (2, 3)
    assert cut(FULL, CHUNKS, **rules).blocks_by_group(1000) == (63, 10)
    assert cut(FULL, NET, mamba_blocks=2, speculative=3).blocks_by_group(1000)[1] == 5
    assert len(cut(FULL, SLIDES, hybrid=False).groups) == 1


def test_a_state_raises_the_block_of_attention() -> None:
    """3 * 96 * 2 + 4 * 10 * 12 * 4 = 2,496 bytes a state; 320 a token: 8 tokens, raised to 16; 2-byte tokens more."""
    assert cut(FULL, NET).groups[0].spec.block == 16
    narrow = Attention(num_heads=1, num_kv_heads=1, head_dim=10)  # 40 bytes a token: 62.4 tokens
    p = cut(narrow, NET)
    assert (p.groups[0].spec.block, p.bytes_per_block) == (64, 64 * 40)
    latent = LatentAttention(num_heads=2, kv_lora_rank=8, qk_rope_head_dim=2, qk_nope_head_dim=4, v_head_dim=4)
    assert cut(latent, NET).groups[0].spec.block == 128  # 20 bytes a token: 124.8, in steps of 64
    assert cut(latent, NET, alignment=24).groups[0].spec.block == 144
    assert cut(latent, NET, block_size=100).groups[0].spec.block == 200


def test_pages_of_unequal_layers_are_made_equal() -> None:
    narrow = attends(num_kv_heads=1, window=100)
    p = cut(FULL, narrow)
    assert {group.spec.kind: group.spec.block for group in p.groups} == {"full": 16, "sliding": 32}
    with pytest.raises(InputError, match="expected a whole number"):
        cut(attends(num_heads=3, num_kv_heads=3), SLIDES)


def test_numbers_printed() -> None:
    p = cut(FULL, SLIDES, max_batched_tokens=48)
    assert p.num_blocks(10 * p.bytes_per_block - 1) == 9
    assert p.concurrency(740, 1000) == 10
    assert p.cache_tokens(741, 1000) == 10013
    assert p.cache_tokens_before(741) == 370 * 16
    assert p.cpu_blocks() == 2**32 // (16 * TOKEN)


def test_vllm_footprint_by_hand() -> None:
    """5 requests of 20 tokens: 2 blocks of the full layer, 3 of the sliding one, and one block set aside."""
    found = reserved("vllm", of(FULL, SLIDES), 20, batch=5, max_batched_tokens=48)
    assert found.bytes_reserved == (5 * (2 + 3) + 1) * 16 * TOKEN
    assert found.reserved[0, "k"] == 5 * 2 * 16 * TOKEN // 2
    assert found.reserved[None, "padding"] == 16 * TOKEN


def test_latents_and_index_keys_with_layouts_of_their_own() -> None:
    latent = LatentAttention(num_heads=2, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=4, v_head_dim=4)
    assert cut(latent).bytes_per_block == 16 * 576 * 2
    assert cut(latent, latent_row=656).bytes_per_block == 16 * 656


# SGLang


def test_sglang_pools() -> None:
    """50 tokens in pages of 16 are 64; a page more; the sliding pool has 0.8 of them: 52 tokens, 64 in pages."""
    found = reserved("sglang", of(FULL, SLIDES), 50, batch=1, page_size=16)
    assert found.reserved[0, "k"] == (64 + 16) * TOKEN // 2
    found = reserved("sglang", of(FULL, attends(window=5)), 50, batch=3, page_size=1)
    assert found.reserved[0, "v"] == (150 + 1) * TOKEN // 2
    assert found.reserved[1, "v"] == (120 + 1) * TOKEN // 2
    found = reserved("sglang", of(NET), 50, batch=3)
    assert found.reserved == {(0, "conv"): 4 * 3 * 96 * 2, (0, "state"): 4 * 4 * 10 * 12 * 4}


def test_sglang_sliding_pool_holds_the_windows() -> None:
    found = reserved("sglang", of(FULL, SLIDES), 50, swa_full_tokens_ratio=Fraction(1, 2))
    assert found.reserved[1, "k"] >= 50 * TOKEN // 2
    assert found.reserved[0, "k"] == (100 + 1) * TOKEN // 2


# llama.cpp: what the engine itself prints is in tests/engines


@pytest.mark.parametrize(
    ("n_ctx", "batch", "rules", "want"),
    [
        (5000, 1, {}, (5120, 1)),
        (5000, 4, {}, (1280, 4)),
        (1025, 4, {}, (512, 4)),
        (5000, 4, {"unified": True}, (5120, 1)),
        (5000, 4, {"version": "2025-05"}, (5120, 1)),
        (100, 1, {"version": "2025-05", "pad": 32}, (128, 1)),
    ],
)
def test_cells(n_ctx: int, batch: int, rules: dict[str, Any], want: tuple[int, int]) -> None:
    assert cells(1, batch, LlamaCppRules(n_ctx=n_ctx, **rules)) == want


@pytest.mark.parametrize(
    ("window", "batch", "rules", "want"),
    [
        (1024, 1, {}, 1536),
        (128, 1, {}, 768),
        (1024, 4, {"unified": True}, 4608),
        (1024, 4, {}, 1536),
        (1024, 1, {"version": "2025-05"}, 3072),
        (1024, 1, {"swa_full": True}, 65536),
        (1024, 1, {"n_ubatch": 4096, "n_batch": 100}, 1280),
    ],
)
def test_sliding_cells(window: int, batch: int, rules: dict[str, Any], want: int) -> None:
    assert sliding_cells(65536, window, batch, LlamaCppRules(**rules)) == want


def test_states_of_llama_cpp_are_float32() -> None:
    found = reserved("llama.cpp", of(attends(head_dim=64), NET), 300, batch=2, k_dtype="q8_0", snapshots=1)
    assert found.reserved[1, "state"] == 2 * 2 * 4 * 10 * 12 * 4
    assert found.reserved[1, "conv"] == 2 * 2 * 3 * 96 * 4
    assert found.reserved[0, "k"] == 2 * 512 * 2 * 64 // 32 * 34


# transformers: what its real caches have is in tests/unit/live


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_convolution_keeps_a_tap_more_of_the_channels_on_a_device(tp: int) -> None:
    """16 heads of 8 values; one group of 4 keys and 4 queries, which every device has."""
    net = Recurrent(conv_channels=16 * 8 + 2 * 4, conv_kernel=4, num_heads=16, key_dim=4, value_dim=8)
    found = reserved("transformers", of(net), 10, batch=3, tensor_parallel=tp)
    assert found.reserved[0, "conv"] == 3 * 4 * (16 * 8 // tp + 2 * 4) * 2
    assert 3 * found.reserved[0, "conv"] == 4 * found.held[0, "conv"]


def test_a_shifted_token_is_no_tap() -> None:
    net = Recurrent(conv_channels=10, conv_kernel=2, shifted=3)
    beside = Layer(mixer=FULL, beside=(net, replace(net, conv_channels=7, shifted=0)))
    found = reserved("transformers", Decoder(hidden_size=24, vocab_size=0, layers=(beside,)), 10)
    assert found.reserved[0, "conv"] == (2 * 10 + 3 + 2 * 7) * 2


def test_a_static_cache_may_be_as_short_as_its_windows() -> None:
    found = reserved("transformers", of(SLIDES, NET), 250, cache="static", max_cache_len=100)
    assert found.reserved[0, "k"] == 100 * TOKEN // 2
    with pytest.raises(InputError, match="`max_cache_len` is 99, expected at least 100"):
        reserved("transformers", of(SLIDES, NET), 250, cache="static", max_cache_len=99)


# Laws

OWN_INDEX = {"vllm": {"index_dtype": "bf16"}, "sglang": {"index_dtype": "bf16"}}


@given(decoders(), st.integers(1, 70), st.integers(1, 3), st.sampled_from(["vllm", "sglang"]))
def test_no_less_is_reserved_than_held(decoder: Decoder, tokens: int, batch: int, engine: str) -> None:
    """Place by place; whatever an engine's rule is not known for is refused."""
    try:
        found = reserved(engine, decoder, tokens, batch=batch, block_size=4, **OWN_INDEX[engine])
    except InputError:
        return
    assert {place: n for place, n in found.held.items() if found.reserved.get(place, 0) < n} == {}


@given(decoders(), st.integers(1, 70), st.integers(1, 3), st.sampled_from(sorted(ENGINES)))
def test_more_tokens_or_requests_take_no_less(decoder: Decoder, tokens: int, batch: int, engine: str) -> None:
    def total(tokens: int, batch: int) -> int:
        return reserved(engine, decoder, tokens, batch=batch).bytes_reserved

    try:
        now = total(tokens, batch)
    except InputError:
        return
    assert now <= total(tokens + 1, batch)
    assert now <= total(tokens, batch + 1)


@given(decoders(), st.integers(1, 70))
def test_blocks_are_whole(decoder: Decoder, tokens: int) -> None:
    """All that vLLM reserves is blocks, padding included."""
    try:
        p = pages(decoder, types=cache_types("bf16"), rules=VllmRules(index_dtype="bf16"))
    except InputError:
        return
    found = reserved("vllm", decoder, tokens, batch=2, index_dtype="bf16")
    assert found.bytes_reserved == (2 * p.blocks(tokens) + 1) * p.bytes_per_block


# Conventions and refusals


@pytest.mark.parametrize("engine", ENGINES)
def test_every_choice_is_a_convention(engine: str) -> None:
    found = reserved(engine, of(FULL), 10)
    named = {f.name for f in fields(ENGINES[engine][0]) if f.default is not None}
    assert named <= set(found.conventions) and found.engine == engine


@pytest.mark.parametrize(
    ("engine", "options", "says"),
    [
        ("tgi", {}, "`engine` is 'tgi'; known: `llama.cpp`, `sglang`, `transformers`, `vllm`"),
        ("vllm", {"page_size": 16}, "`page_size` is no choice of vllm; known: `block_size`, `max_batched_tokens`"),
        ("vllm", {"block_size": 0}, "`block_size` is 0, expected an integer of at least 1"),
        ("vllm", {"dtype": "q8_0"}, "`k_dtype` is 'q8_0'; known: `bf16`, `fp16`, `fp32`, `fp8`"),
        ("sglang", {"dtype": "nvfp4"}, "`k_dtype` is 'nvfp4'; known: "),
        ("sglang", {"swa_full_tokens_ratio": Fraction(0)}, "`swa_full_tokens_ratio` is 0, expected more than 0"),
        ("llama.cpp", {"dtype": "fp8"}, "`k_dtype` is 'fp8'; known: `bf16`, `fp16`, `fp32`, `q4_0`"),
        ("llama.cpp", {"tensor_parallel": 2}, "llama.cpp splits models by layers"),
        ("llama.cpp", {"version": "2024"}, "`version` is '2024'; known: "),
        ("transformers", {"cache": "paged"}, "`cache` is 'paged'; known: `dynamic`, `static`"),
        ("transformers", {"block_size": 7}, "`block_size` is 7, and transformers has no pages\n\nhint: leave it out"),
        ("llama.cpp", {"block_size": 7}, "`block_size` is 7, and llama.cpp has no pages\n\nhint: leave it out"),
        ("sglang", {"block_size": 7, "page_size": 3}, "`block_size` is 7 and `page_size` 3, expected one of them"),
        ("transformers", {"max_cache_len": 30}, "`max_cache_len` is 30 and `cache` `dynamic`, expected `static`"),
        ("transformers", {"cache": "static", "max_cache_len": 29}, "`max_cache_len` is 29, expected at least 30: "),
        ("llama.cpp", {"n_ctx": 89, "batch": 3}, "`n_ctx` is 89, expected at least 90: the tokens of all requests"),
        ("llama.cpp", {"state_dtype": "bf16"}, "`state_dtype` is 'bf16'; known: `fp32`"),
        ("sglang", {"swa_full_tokens_ratio": "x"}, "`swa_full_tokens_ratio` is x, expected more than 0 and at most 1"),
        ("vllm", {"hybrid": "no"}, "`hybrid` is 'no', expected True or False"),
        ("llama.cpp", {"unified": 1}, "`unified` is 1, expected True or False"),
        ("llama.cpp", {"swa_full": "no"}, "`swa_full` is 'no', expected True or False"),
        ("llama.cpp", {"flash_attention": None}, "`flash_attention` is None, expected True or False"),
    ],
)
def test_refusals(engine: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        reserved(engine, of(attends(head_dim=64)), 30, **options)
    assert says in str(caught.value)


def test_kinds_that_an_engine_is_not_known_for() -> None:
    with pytest.raises(InputError, match="layer 1 keeps a cache of kind `chunked`, and how SGLang allocates that"):
        reserved("sglang", of(FULL, CHUNKS), 10)
