"""Wrong questions to `kvtally size`: every message pinned, exit code and all."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kvtally.core.dtype import DTYPES
from kvtally.frontends.cli import main

MOST = "expected an integer of at least 1 and at most 1,000,000,000,000"
TYPES = "known: " + ", ".join(f"`{name}`" for name in DTYPES) + "\n\nhint: name one of these"
BYTES = "expected a number of bytes, such as 80GiB or 24GB\n\nhint: units are B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
RIDGE = "expected FLOPs for each byte, or FLOP/s and bytes/s\n\nhint: write 295, or 989e12/3.35e12"

PINNED = [
    ("size", 2, "kvtally size: missing argument `MODEL`\n\nhint: kvtally size --help lists every option"),
    ("size gpt2 --memroy 3", 2, "kvtally size: no option `--memroy`; nearest: `--memory`, `--fast-memory`\n\n"
     "hint: kvtally size --help lists them all"),
    ("size gpt2 --tokens 0", 2, f"`--tokens` is 0, {MOST}"),
    ("size gpt2 --tokens 1e3", 2, "`--tokens` is '1e3', expected an integer of at least 1"),
    ("size gpt2 --batch many", 2, "`--batch` is 'many', expected an integer of at least 1"),
    ("size gpt2 --block-size 0", 2, f"`--block-size` is 0, {MOST}"),
    ("size gpt2 --block-size 16 --engine llama.cpp", 2,
     "`--block-size` is given with `--engine llama.cpp`, which has no pages; leave one of them out"),
    ("size gpt2 --engine trt", 2,
     "`--engine` is 'trt'; known: `all`, `llama.cpp`, `sglang`, `transformers`, `vllm`"),
    ("size gpt2 --format xml", 2, "`--format` is 'xml'; known: `csv`, `json`, `md`, `table`"),
    ("size gpt2 --kv-cache-dtype fp6", 2, f"`--kv-cache-dtype` is 'fp6'; {TYPES}"),
    ("size gpt2 -ctk q9", 2, f"`--k-dtype` is 'q9'; {TYPES}"),
    ("size gpt2 -ctv ''", 2, f"`--v-dtype` is ''; {TYPES}"),
    ("size gpt2 --tensor-parallel-size 0", 2,
     "`--tensor-parallel-size` is 0, expected an integer of at least 1 and at most 1,000,000"),
    ("size gpt2 --tensor-parallel-size 5", 2,
     "`tensor_parallel` is 5 and a layer has 12 query heads, expected a size that divides them\n\n"
     "hint: use 4 devices"),
    ("size qwen2.5-7b --tensor-parallel-size 14", 2,
     "`tensor_parallel` is 14 and a layer has 4 KV heads, expected a size that divides them\n\nhint: use 4 devices"),
    ("size gpt2 --memory 0", 2, "`--memory` is '0', expected a whole number of bytes of at least 1"),
    ("size gpt2 --memory 0.3B", 2, "`--memory` is '0.3B', expected a whole number of bytes of at least 1"),
    ("size gpt2 --memory 80G", 2, f"`--memory` is '80G', {BYTES}"),
    ("size gpt2 --memory -5GiB", 2, f"`--memory` is '-5GiB', {BYTES}"),
    ("size gpt2 --memory 1GiB --weights lots", 2, f"`--weights` is 'lots', {BYTES}"),
    ("size gpt2 --memory 1GiB --weights 2GiB", 2,
     "the weights take 2,147,483,648 bytes of the 966,367,641 that may be used, expected room for a cache\n\n"
     "hint: use more devices (--tensor-parallel-size), smaller weights, or more memory"),
    ("size gpt2 --memory 1GiB --weights auto", 3, "gpt2: has no weights here\n\nhint: give --weights BYTES"),
    ("size gpt2 --weights 2GiB", 2, "`--weights` is given without `--memory`, expected that as well"),
    ("size gpt2 --memory 1GiB --gpu-memory-utilization 1.5", 2,
     "`--gpu-memory-utilization` is 1.5, expected more than 0 and at most 1"),
    ("size gpt2 --memory 1GiB --gpu-memory-utilization nan", 2,
     "`--gpu-memory-utilization` is 'nan', expected more than 0 and at most 1"),
    ("size gpt2 --ridge 3", 2, "`--ridge` is given without `--roofline`, expected that as well"),
    ("size gpt2 --roofline --ridge 1/0", 2, f"`--ridge` is '1/0', {RIDGE}"),
    ("size gpt2 --roofline --ridge fast", 2, f"`--ridge` is 'fast', {RIDGE}"),
    ("size gpt2 --fast-memory 3", 2, "`--fast-memory` is given without `--roofline`, expected that as well"),
    ("size gpt2 --also llama-2-7b", 2, "`--also` is given without `--plot`, expected that as well"),
    ("size gpt2 --plot picture.png", 2, "`--plot` is 'picture.png', expected a file that ends in .svg or .html"),
    ("size gpt2 --plot x.svg --also gpt2,gpt2,gpt2,gpt2,gpt2,gpt2", 2,
     "`--also` names 6 more curves, expected at most 5"),
    ("size gpt2 --plot /nowhere/x.svg", 3,
     "/nowhere/x.svg: cannot be written: No such file or directory\n\nhint: choose another file for --plot"),
    ("size gpt2 --measure -ctk q8_0", 2,
     "`--measure` is given with K and V of two types, several requests or several devices, expected one of each"),
    ("size gpt2 --measure --batch 7", 2,
     "`--measure` is given with K and V of two types, several requests or several devices, expected one of each"),
    ("size gpt2 --gpu-memory-utilization banana", 2,
     "`--gpu-memory-utilization` is given without `--memory`, expected that as well"),
    ("size gpt2 --roofline --tensor-parallel-size 4", 2,
     "`--roofline` is given with `--tensor-parallel-size 4`, expected one device: it is that of the whole model"),
    ("size gpt2 --roofline --tokens 1000000000000", 2, "`--tokens` is 1,000,000,000,000 with `--roofline`, expected "
     "less: a decode step adds one to them, and 1,000,000,000,000 are the most"),
    ("size gpt2 --explain x --ridge 3", 2, "`--ridge` is given without `--roofline`, expected that as well"),
    ("size gpt2 --engine vllm -ctk q8_0", 2,
     "vllm: `k_dtype` is 'q8_0'; known: `bf16`, `fp16`, `fp32`, `fp8`, `fp8_e4m3`, `fp8_e5m2`, "
     "`fp8_per_token_head`, `int4_per_token_head`, `int8_per_token_head`, `nvfp4`"),
    ("size gpt2 --source 4", 2, "gpt2: `source` is 4, and `gpt2` has no encoder\n\nhint: leave it out"),
    ("size gpt2 --explain x --format csv", 2, "`--format` is 'csv'; known: `json`, `table`"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "message"), PINNED, ids=[words for words, _, _ in PINNED])
def test_a_wrong_question_is_answered_by_what_is_wrong(
    words: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(words)) == code
    assert capsys.readouterr().err.strip() == message


@pytest.mark.parametrize(
    "words", ["--html y.html", "--plot z.svg", "--measure", "--roofline", "--facts", "--batch 1", "--engine vllm"]
)
def test_what_an_explanation_does_not_do_is_refused(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "GPU KV cache size: 290,864 tokens"
    assert main(["size", "gpt2", "--explain", line, *words.split()]) == 2
    expected = f"`{words.split(maxsplit=1)[0]}` is given with `--explain`, where it means nothing\n"
    assert capsys.readouterr() == ("", expected)
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_is_no_known_one_is_shown_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "gpt2", "--explain", "GPU cache: 3 tokens"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("--explain: 'GPU cache: 3 tokens' is no known line of a log; the nearest known are\n")
    assert len(said.split("\n\n")[0].splitlines()) == 4
