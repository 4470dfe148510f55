"""Every published number of `engine_logs.json`, reproduced by the code that `size` runs.

`exact` rows to the printed precision, `consistent` rows inside the interval that a rounded input leaves,
`differs` rows with the difference that they state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.holding import holdings
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.engine_llama_cpp import LlamaCppRules, caches, mib
from kvtally.pure.engine_parts import Asked, kept
from kvtally.pure.engine_sglang import SglangRules, gigabytes, pool
from kvtally.pure.engine_vllm import Pages, VllmRules, pages
from kvtally.pure.explained import interval
from kvtally.pure.size import cache_types, size

LOGS = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "facts" / "engine_logs.json"
ROWS: list[dict[str, Any]] = json.loads(LOGS.read_text()) if LOGS.is_file() else []
GIB = 2**30

Facts = dict[str, Any]


def of(*mixers: Mixer | None) -> Decoder:
    """A decoder of these mixers, one a layer; nothing but its cache matters here."""
    return Decoder(hidden_size=1, vocab_size=0, layers=tuple(Layer(mixer=mixer) for mixer in mixers))


def attends(c: Facts, **more: Any) -> Attention:
    return Attention(num_heads=c["kv_heads"], num_kv_heads=c["kv_heads"], head_dim=c["head_dim"], **more)


def plain(c: Facts, layers: str = "layers") -> Decoder:
    return of(*(attends(c),) * c[layers])


def latent(c: Facts, rank: int, rope: int) -> LatentAttention:
    return LatentAttention(num_heads=1, kv_lora_rank=rank, qk_rope_head_dim=rope, qk_nope_head_dim=1, v_head_dim=1)


def delta(heads: int, keys: int, dk: int, dv: int, taps: int, shifted: int = 0) -> Recurrent:
    """A delta net: convolutions over queries, keys and values, a matrix a head."""
    return Recurrent(
        conv_channels=2 * keys * dk + heads * dv, conv_kernel=taps, num_heads=heads, key_dim=dk, value_dim=dv,
        shifted=shifted,
    )  # fmt: skip


def attention_and_delta(c: Facts) -> Decoder:
    net = delta(c["Hv"], c["Hk"], c["dk"], c["dv"], c["conv"])
    return of(*(attends(c),) * c["full"], *(net,) * c["linear"])


# llama.cpp, in MiB


def llama_cpp(decoder: Decoder, n_ctx: int, dtype: str, *, batch: int = 1, which: int = 0, **rules: Any) -> Fraction:
    """MiB of one of its caches, printed and read again, as the published number was."""
    found = caches(decoder, Asked(tokens=1, batch=batch, types=cache_types(dtype)), LlamaCppRules(n_ctx=n_ctx, **rules))
    return Fraction(mib(found[which].bytes))


def gemma3(c: Facts, full: int, window: int) -> Decoder:
    slides = c["layers"] - full
    return of(*(attends(c),) * full, *(attends(c, window=window),) * slides)


def iswa(c: Facts, full: int, which: int) -> Fraction:
    return llama_cpp(gemma3(c, full, 1024), 65536, "f16", which=which, version="2025-05")


def state(c: Facts) -> Decoder:
    net = delta(
        c["linear_num_value_heads"], c["linear_num_key_heads"], c["linear_key_head_dim"], c["linear_value_head_dim"],
        c["conv_kernel"],
    )  # fmt: skip
    return of(*(net,) * c["linear_layers"])


def mamba(c: Facts) -> Decoder:
    inner = c["d_inner"]
    one = Recurrent(conv_channels=inner, conv_kernel=c["d_conv"], num_heads=inner, key_dim=c["d_state"], value_dim=1)
    return of(*(one,) * c["layers"])


def openvino() -> Fraction:
    """24 layers: [32, 128, 128] of state, 3 taps of 4,096 channels, 2 gates of 32."""
    one = Recurrent(conv_channels=4096, conv_kernel=4, num_heads=32, key_dim=128, value_dim=128, shifted=64)
    rows = (h for layer in holdings(of(*(one,) * 24)) for h in layer)
    return Fraction(sum(4 * h.heads * h.width for h in rows), 2**20)


# vLLM


def cut(decoder: Decoder, dtype: str = "bf16", tp: int = 1, **rules: Any) -> Pages:
    return pages(decoder, types=cache_types(dtype), tensor_parallel=tp, rules=VllmRules(**rules))


def blocks_of(c: Facts, gib: str, tp: int = 1, each: int = 1) -> tuple[int, int]:
    """Fewest and most blocks that a rounded size of memory allows, times `each`."""
    found = [cut(plain(c), tp=tp).num_blocks(edge) * each for edge in interval(gib, GIB)]
    return found[0], found[1]


def tokens_of_1478_blocks(c: Facts) -> int:
    """The number of blocks is printed, and within what the printed memory allows."""
    low, high = blocks_of(c, "2.89")
    assert low <= 1478 <= high and f"{float(cut(plain(c)).concurrency(1478, 29000)):.2f}" == "0.82"
    return cut(plain(c)).cache_tokens_before(1478)


def gpt_oss(c: Facts) -> tuple[int, int]:
    p = cut(of(*(attends(c),) * c["full"], *(attends(c, window=c["window"]),) * c["sliding"]))
    low, high = (p.cache_tokens_before(p.num_blocks(edge)) for edge in interval("5.38", GIB))
    return low, high


def kimi(c: Facts) -> Pages:
    net = delta(c["kda_heads"], c["kda_heads"], c["kda_dim"], c["kda_dim"], c["conv"])
    mla = replace(latent(c, 512, c["latent"] - 512), num_heads=32)
    p = cut(of(*(mla,) * c["mla"], *(net,) * c["kda"]), tp=c["tp"])
    assert p.groups[0].spec.block == c["attn_block"] and p.padding_layers == 1
    return p


def kimi_tokens(c: Facts) -> tuple[int, int]:
    p = kimi(c)
    low, high = (p.cache_tokens_before(p.num_blocks(edge)) for edge in interval("2.30", GIB))
    return low, high


def qwen35(c: Facts) -> Fraction:
    """1,487 is the one number of blocks that gives both printed numbers."""
    p = cut(attention_and_delta(c))
    assert p.groups[0].spec.block == c["attn_block"]
    both = [n for n in range(1400, 1600) if p.cache_tokens_before(n) == 290_864
            and f"{float(p.concurrency(n, 32768)):.2f}" == "33.04"]  # fmt: skip
    assert both == [1487]
    return Fraction(f"{float(p.concurrency(1487, 32768)):.2f}")


def qwen38(c: Facts) -> int:
    """208 is the one number of blocks that gives the printed tokens; heads of the states are Qwen3.5-27B's."""
    heads = {"Hk": 16, "Hv": 48, "dk": 128, "dv": 128, "conv": 4}
    p = cut(attention_and_delta(c | heads), "fp8_e4m3", tp=2, mamba_blocks=2)
    assert p.groups[0].spec.block == c["attn_block"] and p.blocks_by_group(131072) == (84, 2, 2, 2)
    assert [n for n in range(1000) if p.cache_tokens(n, 131072) == 302_921] == [208]
    assert f"{float(p.concurrency(208, 131072)):.2f}" == "2.31"
    without_align = cut(attention_and_delta(c | heads), "fp8_e4m3", tp=2)
    assert not any(without_align.cache_tokens(n, 131072) == 302_921 for n in range(1000))
    return p.cache_tokens(208, 131072)


# SGLang, in "GB" of 2^30 bytes


def sglang(decoder: Decoder, tokens: int, part: str, page: int = 1) -> Fraction:
    parts = kept(decoder, tensor_parallel=4)
    found = pool(parts, tokens, types=cache_types("bf16"), rules=SglangRules(page_size=page))
    return Fraction(gigabytes(sum(n for (_, name), n in found.items() if name == part)))


def mimo(c: Facts) -> Decoder:
    heads = c["swa_kv_heads"]
    one = Attention(num_heads=heads, num_kv_heads=heads, head_dim=192, v_head_dim=c["swa_v_head_dim"], window=128)
    return of(*(one,) * c["swa_layers"])


def gib(decoder: Decoder, tokens: int, digits: int = 2) -> Fraction:
    """GiB held, printed as the source prints it."""
    return Fraction(f"{size(decoder, tokens).bytes_held / GIB:.{digits}f}")


Computed = Fraction | int | tuple[int, int]
HOW: dict[int, Callable[[Facts], Computed]] = {
    1: lambda c: llama_cpp(plain(c), 8192, "q8_0"),
    2: lambda c: llama_cpp(of(*(latent(c, 512, 64),) * c["layers"]), 32768, "q8_0"),
    3: lambda c: llama_cpp(plain(c, "full_attention_layers"), 262144, "f16", batch=4, unified=True),
    5: lambda c: llama_cpp(state(c), 256, "f16"),
    6: lambda c: llama_cpp(mamba(c), 256, "f16"),
    7: lambda c: llama_cpp(plain(c), 512, "f32", version="before iSWA"),
    9: lambda c: iswa(c, c["full_layers"], 0),
    10: lambda c: iswa(c, c["layers"] - c["swa_layers"], 1),
    11: lambda c: iswa(c, c["full_layers"], 0),
    13: lambda c: iswa(c, c["full_layers"], 0),
    14: lambda c: iswa(c, c["layers"] - c["swa_layers"], 1),
    15: lambda c: llama_cpp(gemma3(c, 10, 1024), 65536, "f16", version="before iSWA"),
    17: lambda c: sum(llama_cpp(gemma3(c, 3, 512), 1024, "f16", batch=4, which=i) for i in (0, 1)),
    18: lambda c: llama_cpp(plain(c), 512, "f16", version="before iSWA"),
    19: lambda c: blocks_of(c, "11.12"),
    21: lambda c: blocks_of(c, "3.81"),
    22: tokens_of_1478_blocks,
    23: lambda c: cut(plain(c)).cpu_blocks(),
    24: lambda c: cut(plain(c), "f16").cpu_blocks(),
    26: lambda c: cut(plain(c), tp=c["tp"]).cpu_blocks(),
    28: lambda c: blocks_of(c, "8.11", c["tp"], 16),
    29: lambda c: sglang(plain(c), 367404, "k"),
    30: gpt_oss,
    32: qwen35,
    34: qwen38,
    35: lambda c: gib(of(*(latent(c, c["kv_lora_rank"], c["qk_rope_head_dim"]),) * c["layers"]), 1048576, 1),
    37: kimi_tokens,
    38: lambda c: Fraction(f"{float(kimi(KIMI).concurrency(c['num_blocks'], 120000)):.2f}"),
    39: lambda c: cut(of(Attention(num_heads=1, num_kv_heads=1, head_dim=1))).cache_tokens_before(127626),
    41: lambda c: sglang(mimo(c), 300288, "v", c["page"]),
    42: lambda c: size(plain(c), 132608, dtype="f16").bytes_held,
    44: lambda _: openvino(),
    45: lambda c: gib(plain(c), 128000),
    46: lambda c: gib(plain(c), 128000),
    47: lambda c: gib(plain(c), 128000),
    49: lambda c: cut(plain(c)).cpu_blocks(),
    51: lambda c: llama_cpp(plain(c), 2048, "f16", version="before iSWA"),
    53: lambda c: llama_cpp(plain(c, "attention_layers"), 32768, "f16"),
}
KIMI: Facts = next((row["config"] for row in ROWS if row["id"] == 37), {})
# What a row that differs says about its difference: printed over computed.
STATED = {
    5: lambda printed, low, high: 0 < (printed - low) * 2**20 < 2048,  # about 1 KiB of header; printed to 1 KiB
    28: lambda printed, low, high: printed < low and f"{float(1 - printed / 180928):.3f}" == "0.011",
    44: lambda printed, low, high: printed == 51 and f"{float(low):.4f}" == "49.1309",
    47: lambda printed, low, high: printed == 2 * Fraction("61.525") and low == Fraction("61.52"),
}  # fmt: skip


@pytest.mark.skipif(not ROWS, reason="needs the facts in ../shared, or KVTALLY_SHARED")
def test_all_rows_are_here() -> None:
    assert {row["id"] for row in ROWS} == set(HOW)
    assert {row["id"] for row in ROWS if row["status"] == "differs"} == set(STATED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['status']}-{row['source_url'][8:]}")
def test_row(row: Facts) -> None:
    computed, printed = HOW[row["id"]](row["config"]), Fraction(str(row["reported"]))
    low, high = computed if isinstance(computed, tuple) else (computed, computed)
    if row["status"] == "differs":
        assert STATED[row["id"]](printed, low, high), row["note"]
    else:
        assert low <= printed <= high, row["note"]
    if row["status"] == "exact":
        assert low == high
    if row["computed_span"]:
        assert [low, high] == row["computed_span"]
