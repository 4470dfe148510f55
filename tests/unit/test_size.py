"""Bytes held, what fits, how long: real configs to the byte, every part by hand, devices, memory, weights."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from kvtally.core.decoder import Decoder, Layer, lesson
from kvtally.core.errors import InputError, UnreadableError
from kvtally.core.footprint import Footprint
from kvtally.core.holding import holdings
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.passes import LONGEST
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config
from kvtally.pure.size import cache_types, fits, held_bytes, longest, size
from kvtally.pure.size_terms import products
from kvtally.pure.weights import weight_bytes

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "facts"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of shared facts (KVTALLY_SHARED)")
CONFIGS = sorted((SHARED / "configs").glob("*.json"))
SOURCE = {"whisper": 1500}  # positions of the encoder


def decoder(*layers: Layer) -> Decoder:
    return Decoder(hidden_size=20, vocab_size=0, layers=layers)


def gqa(**more: int | None) -> Attention:
    return Attention(num_heads=12, num_kv_heads=4, head_dim=8, v_head_dim=6, **more)


GDN = Recurrent(
    matrices=((Term.in_proj, None, 40),),
    conv_channels=2 * 2 * 3 + 4 * 5,
    conv_kernel=4,
    num_heads=4,
    key_dim=3,
    value_dim=5,
)
MLA = LatentAttention(num_heads=6, kv_lora_rank=10, qk_rope_head_dim=3, qk_nope_head_dim=4, v_head_dim=5, top_k=2)
INDEXER = Indexer(num_heads=3, head_dim=7)


@needs_shared
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_real_config_holds_its_bytes_exactly(path: Path) -> None:
    config = json.loads(path.read_text())
    found = read_config(config, source=SOURCE.get(str(config["model_type"])))
    expected = json.loads((SHARED / "sizes_32768_bf16.json").read_text())[path.stem]
    held = size(found, 32768)
    assert held.bytes_held - held.by("part").get("cross", 0) == expected  # which leaves cross attention out
    assert sum(line.bytes for line in products(found, 32768)) == held.bytes_held


def test_every_part_by_hand() -> None:
    cross = CrossAttention(num_heads=6, num_kv_heads=3, head_dim=5, source=11)
    mixed = decoder(
        Layer(mixer=gqa(window=9), cross=cross), Layer(mixer=MLA, beside=(INDEXER,)), Layer(mixer=GDN), Layer()
    )
    held = size(mixed, 50, batch=3)
    assert held.held == {
        (0, "k"): 3 * 9 * 4 * 8 * 2,
        (0, "v"): 3 * 9 * 4 * 6 * 2,
        (0, "cross"): 3 * 2 * 11 * 3 * 5 * 2,
        (1, "latent"): 3 * 50 * 13 * 2,
        (1, "index"): 3 * 50 * 7 * 2,
        (2, "conv"): 3 * 3 * 32 * 2,
        (2, "state"): 3 * 4 * 15 * 4,
    }
    assert held.bytes_held == sum(held.held.values()) == sum(held.by("layer").values())
    assert held.conventions["state_dtype"] == "fp32"


def test_types_of_k_and_v_and_states_are_apart() -> None:
    held = size(decoder(Layer(mixer=gqa()), Layer(mixer=GDN)), 5, k_dtype="fp8_per_token_head", v_dtype="fp32",
                state_dtype="bf16").held  # fmt: skip
    assert held == {
        (0, "k"): 5 * 4 * (8 + 4),
        (0, "v"): 5 * 4 * 6 * 4,
        (1, "conv"): 3 * 32 * 2,  # not quantised with K: bf16
        (1, "state"): 60 * 2,
    }
    with pytest.raises(InputError, match="`state_dtype` is `fp8`, expected `fp32`, `bf16` or `fp16`"):
        cache_types(state_dtype="fp8")


def test_a_layer_that_reads_anothers_k_and_v_holds_nothing_and_its_donor_as_much_as_it_needs() -> None:
    donor, reader = Layer(mixer=gqa(window=3)), Layer(mixer=gqa(window=8), reads=0)
    assert size(decoder(donor, reader), 20).held == {(0, "k"): 8 * 4 * 8 * 2, (0, "v"): 8 * 4 * 6 * 2}


def test_devices_share_heads_and_repeat_what_they_cannot_share() -> None:
    mixed = decoder(Layer(mixer=gqa()), Layer(mixer=MLA, beside=(INDEXER,)))
    whole = size(mixed, 10).held
    half = size(mixed, 10, tensor_parallel=2).held
    assert [half[0, "k"] * 2, half[0, "v"] * 2] == [whole[0, "k"], whole[0, "v"]]
    assert [half[1, "latent"], half[1, "index"]] == [whole[1, "latent"], whole[1, "index"]]
    many = Attention(num_heads=12, num_kv_heads=3, head_dim=8)
    assert size(decoder(Layer(mixer=many)), 10, tensor_parallel=6).held[0, "k"] == 10 * 1 * 8 * 2  # one head, repeated


def test_a_device_of_a_recurrent_layer_has_whole_heads_and_groups() -> None:
    half = size(decoder(Layer(mixer=GDN)), 10, tensor_parallel=2).held
    assert half == {(0, "conv"): 3 * (2 * 10 // 2 + 2 * 3) * 2, (0, "state"): 2 * 15 * 4}
    quarter = size(decoder(Layer(mixer=GDN)), 10, tensor_parallel=4).held
    assert quarter[0, "conv"] == 3 * (5 + 2 * 3) * 2  # two groups among four devices: one, repeated


@pytest.mark.parametrize(
    ("layer", "devices", "what"),
    [
        (Layer(mixer=gqa()), 3, "4 KV heads"),
        (Layer(mixer=gqa()), 5, "12 query heads"),
        (Layer(mixer=MLA), 4, "6 query heads"),
        (Layer(mixer=GDN), 3, "4 state heads"),
    ],
)
def test_heads_that_do_not_divide_are_refused(layer: Layer, devices: int, what: str) -> None:
    with pytest.raises(InputError, match=f"`tensor_parallel` is {devices} and a layer has {what}, expected") as refused:
        size(decoder(layer), 10, tensor_parallel=devices)
    assert refused.value.hint.endswith(" devices")


def test_layers_of_the_same_mixers_have_one_tuple_of_holdings() -> None:
    mixer = gqa()
    first, second, other = holdings(decoder(Layer(mixer=mixer), Layer(mixer=mixer), Layer(mixer=gqa(window=2))))
    assert first is second
    assert first is not other


def test_as_many_fit_as_memory_has_whole_requests_of() -> None:
    needed = held_bytes(lesson(), cache_types())  # 256 bytes a token
    assert fits(needed, 25_600 * 7 - 1, 100) == 6
    assert fits(needed, 25_600 * 7, 100) == 7
    assert fits(needed, 25_599, 100) == 0
    assert longest(needed, 256 * 9 * 4 + 1023, batch=4) == 9
    assert longest(needed, 255) == 0


def test_what_fits_is_asked_within_bounds() -> None:
    needed = held_bytes(lesson(), cache_types())
    assert fits(needed, 256 * LONGEST, LONGEST) == 1 and fits(needed, 0, 1) == 0
    for tokens in (0, LONGEST + 1):
        with pytest.raises(
            InputError, match=f"`tokens` is .*, expected an integer of at least 1 and at most {LONGEST:,}"
        ):
            fits(needed, 10, tokens)
    for batch in (0, LONGEST + 1):
        with pytest.raises(
            InputError, match=f"`batch` is .*, expected an integer of at least 1 and at most {LONGEST:,}"
        ):
            longest(needed, 10, batch)
    for ask in (lambda: fits(needed, -1, 1), lambda: longest(needed, -1)):
        with pytest.raises(InputError, match="`memory` is -1, expected an integer of at least 0"):
            ask()


def test_a_state_that_does_not_grow_fits_at_any_length() -> None:
    needed = held_bytes(decoder(Layer(mixer=GDN)), cache_types())
    assert longest(needed, needed(1, 1)) == LONGEST
    assert longest(needed, needed(1, 1) - 1) == 0


def test_a_footprint_says_what_it_is() -> None:
    found = Footprint(
        tokens=2, batch=1, held={(0, "k"): 8, (1, "v"): 0}, reserved={(None, "padding"): 16}, engine="vllm"
    )
    assert found.held == {(0, "k"): 8}
    assert found.to_dict()["bytes_reserved"] == 16
    assert "reserved by vllm 16 B" in str(found)
    assert "<td>16</td>" in found._repr_html_()
    with pytest.raises(InputError, match="`part` is 'q'; known"):
        Footprint(tokens=2, batch=1, held={(0, "q"): 8})
    with pytest.raises(InputError, match="is -1, expected an integer of at least 0"):
        Footprint(tokens=2, batch=1, held={(0, "k"): -1})


def shard(path: Path, **tensors: tuple[int, int]) -> None:
    header = {name: {"dtype": "BF16", "shape": [b - a], "data_offsets": [a, b]} for name, (a, b) in tensors.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)  # tensors themselves are never read


def test_weights_are_summed_over_the_headers_of_the_files_an_index_names(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", w=(0, 10), v=(10, 13))
    shard(tmp_path / "b.safetensors", u=(0, 100))
    shard(tmp_path / "old.safetensors", u=(0, 7))
    assert weight_bytes(str(tmp_path / "b.safetensors")) == 100
    assert weight_bytes(str(tmp_path)) == 120
    index = {"weight_map": {"w": "a.safetensors", "v": "a.safetensors", "u": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weight_bytes(str(tmp_path / "config.json")) == 113


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no whole safetensors file"),
        (b"\xff" * 20, "is no whole safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "has a header that is no object"),
        (struct.pack("<Q", 3) + b"{{{", "has a header that is no JSON"),
        (struct.pack("<Q", 8) + b'{"w": 1}', "has no place for the tensor `w`"),
    ],
)
def test_a_file_that_is_no_safetensors_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as error:
        weight_bytes(str(path))
    assert error.value.problem == problem and error.value.where == str(path)


def test_an_index_reads_no_file_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../secret.safetensors"}}')
    with pytest.raises(UnreadableError, match="names files outside its folder"):
        weight_bytes(str(tmp_path))


def test_weights_of_a_gguf_file_reach_from_its_first_tensor_to_its_end(tmp_path: Path) -> None:
    import gguf
    import numpy

    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", numpy.ones((3, 32), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert weight_bytes(str(path)) == 3 * 32 * 4
