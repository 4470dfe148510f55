"""Files made to break a reader: one clear sentence, exit code 2 or 3, no traceback, bounded memory and time."""

from __future__ import annotations

import copy
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtally import KvtallyError, UnreadableError, read_config, read_gguf
from kvtally.frontends.cli import main

MEMORY, SECONDS = 600 * 2**20, 60  # address space (Python takes a fourth of it) and CPU time of a process
HUGE = 2**60
LLAMA: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 6}
DEEP = 10_000


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*, keys: int, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)


def number(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", 4, value)


SIZES = {
    "block_count": 2,
    "embedding_length": 24,
    "feed_forward_length": 40,
    "attention.head_count": 6,
    "vocab_size": 9,
}
WHOLE = (
    header(keys=len(SIZES) + 2, tensors=1)
    + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    + b"".join(number(f"llama.{name}", value) for name, value in SIZES.items())
    + text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
    + text("token_embd.weight") + struct.pack("<IQQIQ", 2, 24, 9, 0, 0)
)  # fmt: skip


def test_a_gguf_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(WHOLE)
    assert read_gguf(path).held(1) == 2 * 48
    for length in range(len(WHOLE)):
        path.write_bytes(WHOLE[:length])
        with pytest.raises(UnreadableError) as caught:
            read_gguf(path)
        assert str(caught.value).startswith("cut.gguf: ") and caught.value.exit_code == 3
        assert "\n" not in str(caught.value).partition("\n\nhint: ")[0]


def refused(path: Path) -> tuple[int, str]:
    """Exit code and stderr of `kvtally facts PATH` in a process whose memory and CPU time are limited."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    run = subprocess.run(
        [sys.executable, "-m", "kvtally", "facts", str(path)],
        capture_output=True, text=True, check=False, preexec_fn=limit, cwd=path.parent,
    )  # fmt: skip
    assert run.stdout == ""
    return run.returncode, run.stderr.replace(f"{path.parent}/", "").removesuffix("\n")


SOUND = "\n\nhint: download the file again: "
CUT, DAMAGED = f"expected a whole GGUF file{SOUND}it is cut off or damaged", "its header is damaged"
NESTED = struct.pack("<IQ", 9, 1) * DEEP + struct.pack("<IQ", 4, 0)
GGUF = {
    "2^60 keys": (header(keys=HUGE), 0, f"{HUGE:,} keys and 0 tensors are announced in 24 bytes, expected what fits in "
                  f"them{SOUND}{DAMAGED}"),
    "2^60 tensors": (header(keys=0, tensors=HUGE), 0, f"0 keys and {HUGE:,} tensors are announced in 24 bytes, "
                     f"expected what fits in them{SOUND}{DAMAGED}"),
    "2^60 numbers": (header(keys=1) + text("a") + struct.pack("<IIQ", 9, 4, HUGE), 0,
                     f"{4 * HUGE:,} bytes are announced at byte 49 of 49, {CUT}"),
    "2^60 strings": (header(keys=1) + text("a") + struct.pack("<IIQ", 9, 8, HUGE), 0, f"an array of {HUGE:,} values of "
                     "type 8 is at byte 49, expected numbers, or at most 2,000,000 strings in all"),
    "a string of 2^60 bytes": (header(keys=1) + text("a") + struct.pack("<IQ", 8, HUGE), 0,
                               f"{HUGE:,} bytes are announced at byte 45 of 45, {CUT}"),
    "a name of 2^60 bytes": (header(keys=1) + struct.pack("<Q", HUGE) + bytes(9), 0,
                             f"{HUGE:,} bytes are announced at byte 32 of 41, {CUT}"),
    "arrays in arrays": (header(keys=1) + text("a") + struct.pack("<I", 9) + NESTED, 0, "an array of 1 values of type "
                         "9 is at byte 49, expected numbers, or at most 2,000,000 strings in all"),
    "strings without end": (header(keys=9) + text("a") + struct.pack("<IIQ", 9, 8, 2_000_001), 400 * 2**20,
                            "an array of 2,000,001 values of type 8 is at byte 49, expected numbers, or at most "
                            "2,000,000 strings in all"),
    "tensors without end": (header(keys=0, tensors=10**7), 400 * 2**20, "0 keys and 10,000,000 tensors are announced "
                            f"in 419,430,400 bytes, expected what fits in them{SOUND}{DAMAGED}"),
    "400 MiB of nothing": (b"", 400 * 2**20, "starts with b'\\x00\\x00\\x00\\x00', expected b'GGUF'\n\n"
                           "hint: is it a GGUF file, and a whole one?"),
}  # fmt: skip


@pytest.mark.parametrize("name", GGUF)
def test_a_gguf_file_that_claims_too_much_takes_neither_memory_nor_time(name: str, tmp_path: Path) -> None:
    content, size, message = GGUF[name]
    path = tmp_path / "hostile.gguf"
    with path.open("wb") as file:
        file.write(content)
        file.truncate(max(size, len(content)))  # the rest is a hole: zeros that take no disk
    assert refused(path) == (3, f"hostile.gguf: {message}")


AN_INTEGER = "expected an integer of at least 1 and at most 1,000,000,000"
LIES = "\n\nhint: give the config.json that lies beside the weights"
TOO_DEEP = f"is JSON nested too deep, expected a config of a few levels{LIES}"
JSON = {
    "lists in lists": (b"[" * DEEP + b"]" * DEEP, 0, TOO_DEEP),
    "objects in objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 0, TOO_DEEP),
    "lists without end": (b"[" * 10**6, 0, TOO_DEEP),
    "200 MB": (json.dumps(LLAMA).encode(), 200 * 10**6,
               "is 200,000,000 bytes, expected a config of at most 16,777,216"),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_a_json_file_too_deep_or_too_large_takes_neither_memory_nor_time(name: str, tmp_path: Path) -> None:
    content, size, message = JSON[name]
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.write(content)
        file.truncate(max(size, len(content)))
    assert refused(path) == (2, f"config.json: {message}")


def with_llama(fields: str) -> bytes:
    return json.dumps(LLAMA).encode()[:-1] + b", " + fields.encode() + b"}"


SMALL_JSON = {
    b"\xff\xfe\xfa": f"is not JSON: byte 2 is no UTF-8 text{LIES}",
    b'{"model_type": "\xe9"}': f"is not JSON: byte 16 is no UTF-8 text{LIES}",
    b"": f"is not JSON: Expecting value at line 1, column 1{LIES}",
    b"[]": f"is [], expected a JSON object{LIES}",
    with_llama('"head_dim": NaN'): f"`head_dim` is NaN, {AN_INTEGER}",
    with_llama('"head_dim": Infinity'): f"`head_dim` is Infinity, {AN_INTEGER}",
    with_llama('"head_dim": -Infinity'): f"`head_dim` is -Infinity, {AN_INTEGER}",
    with_llama('"head_dim": 1e999'): f"`head_dim` is Infinity, {AN_INTEGER}",
    with_llama('"head_dim": 4.0'): "`head_dim` is 4.0, expected an integer of at least 1 and at most 1,000,000,000",
    with_llama('"head_dim": -4'): "`head_dim` is -4, expected an integer of at least 1 and at most 1,000,000,000",
    with_llama('"head_dim": "4"'): '`head_dim` is "4", expected an integer of at least 1 and at most 1,000,000,000',
    with_llama('"head_dim": true'): "`head_dim` is true, expected an integer of at least 1 and at most 1,000,000,000",
    with_llama('"head_dim": [[4]]'): "`head_dim` is [[4]], expected an integer of at least 1 and at most 1,000,000,000",
    with_llama('"head_dim": ' + "9" * 99):
        "`head_dim` is an integer of 329 bits, expected an integer of at least 1 and at most 1,000,000,000",
    with_llama('"head_dim": ' + "9" * 9999): "is JSON that cannot be read: Exceeds the limit (4300 digits) for integer "
        f"string conversion: value has 9999 digits{LIES}",
    with_llama('"vocab_size": 9, "vocab_size": 9'): "has `vocab_size` twice in one object, expected it once",
    with_llama('"rope_scaling": {"a": 1, "a": 2}'): "has `a` twice in one object, expected it once",
}  # fmt: skip


def test_a_number_that_is_none_is_let_be_where_nobody_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(with_llama('"time_step_limit": [0.0, Infinity]'))
    assert main(["facts", str(path)]) == 0


@pytest.mark.parametrize("content", SMALL_JSON, ids=lambda content: content[-40:].decode("latin-1"))
def test_a_json_file_that_is_wrong_gets_this_message(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    code = main(["facts", str(path)])
    out, err = capsys.readouterr()
    assert (code, out, err) == (2, "", f"{path}: {SMALL_JSON[content]}\n")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
DESCRIBED: dict[str, Any] = {
    "kvtally": 1, "hidden_size": 24, "vocab_size": 9, "outside": [[3, 4]], "layers": [
        {"repeat": 2, "mixer": {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "window": 3},
         "mlp": {"kind": "experts", "num_experts": 4, "per_token": 2, "width": 9, "router": [3]}},
        {"mixer": {"kind": "recurrent", "matrices": [["in_proj", None, 4]], "conv_channels": 4}, "reads": None}],
}  # fmt: skip
GEMMA = LLAMA | {"model_type": "gemma2", "sliding_window": 9, "layer_types": ["full_attention"] * 2, "head_dim": 4}
KIMI = {"model_type": "kimi_linear", "num_hidden_layers": 2, "linear_attn_config": {
    "full_attn_layers": [2], "kda_layers": [1], "num_heads": 3, "head_dim": 4, "short_conv_kernel_size": 4,
}}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


SPOTS = [(config, path) for config in (GEMMA, KIMI, DESCRIBED) for path in places(config)]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SPOTS), ANY)
def test_any_json_in_any_place_reads_or_is_refused(spot: tuple[dict[str, Any], tuple[Any, ...]], value: Any) -> None:
    config, (*path, last) = copy.deepcopy(spot[0]), spot[1]
    inner: Any = config
    for key in path:
        inner = inner[key]
    inner[last] = value
    try:
        read_config(config)
    except KvtallyError as error:
        assert str(error).startswith("config: ")
