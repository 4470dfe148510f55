"""The command line in real processes and in this one: what it prints, what it loads, how it ends."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kvtally
from kvtally.frontends.cli import main
from kvtally.frontends.question import Question, answer
from kvtally.pure.model import read_model

KVTALLY = [sys.executable, "-m", "kvtally"]


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints to stdout, nothing being said on stderr."""
    assert main(words) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def record(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(printed(capsys, *words, "--format", "json"))


def test_the_lesson_is_answered_with_the_figures_of_the_lesson(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {" ".join(line.split()) for line in printed(capsys, "count").splitlines()}
    assert {
        "token states 5,050 100 50.5×",
        "multiplications to project 62,054,400 1,228,800 50.5×",
        "comparisons 5,050 5,050 same",
        "multiplications to score 323,200 323,200 same",
        "multiplications to mix 323,200 323,200 same",
        "total 62,700,800 1,875,200 33.4×",
        "cache elements 0 12,800",
        "cache size 0 B 25.0 KiB",
        "executed on a small copy, both loops agree: 0 apart, tolerance 1e-9",
    } <= rows


@pytest.mark.parametrize(
    "words",
    ["", "--by layer", "--by phase", "--by term", "--lengths 10,100,1000", "--edit-at 100", "--turns 512+128,64+128",
     "--chunk 100", "llama-3.1-405b --prompt 100000 --new 1000", "deepseek-v3 --absorbed",
     "llama-3.1-405b --lengths 10,1000,1000000", "gpt2 --lengths 10,1000,100000",
     "gpt2 --lengths 1,100000000"],
)  # fmt: skip
def test_every_table_fits_80_columns_without_colour(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = printed(capsys, "count", *words.split())
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_the_default_fits_75_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert max(len(line) for line in printed(capsys, "count").splitlines()) <= 75


def test_json_holds_what_python_counts(capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, "count", "gpt2", "--prompt", "7", "--new", "5", "--kernel", "dense", "--batch", "3")
    decoder = read_model("gpt2")
    off = 3 * kvtally.count(decoder, kvtally.uncached(7, 5), kernel="dense")
    on = 3 * kvtally.count(decoder, kvtally.cached(7, 5), kernel="dense")
    assert [side["tally"] for side in found["sides"]] == [off.to_dict(), on.to_dict()]
    assert found["sides"][1]["cache"]["bytes"] == 2 * 3 * decoder.held(11)
    assert found["ratios"]["states"] == off.states / on.states
    asked = Question(decoder=decoder, prompt=7, new=5, kernel="dense", batch=3)
    assert found == json.loads(json.dumps({"verb": "count", **answer(asked).to_dict()}))


@pytest.mark.parametrize(
    ("words", "names", "lists"),
    [
        ("--prompt 9 --new 2 --edit-at 4", ["all again", "from 4 on"],
         [kvtally.cached(9, 2), kvtally.edited(9, 4, 2)]),
        ("--turns 5+3,2+2", ["resent", "carried"],
         [kvtally.conversation([(5, 3), (2, 2)], carried=False), kvtally.conversation([(5, 3), (2, 2)], carried=True)]),
        ("--prompt 9 --new 2 --chunk 4", ["one prefill", "chunks of 4"],
         [kvtally.cached(9, 2), kvtally.chunked(9, 2, 4)]),
    ],
)  # fmt: skip
def test_other_lists_of_passes_stand_beside_the_obvious_other_side(
    words: str, names: list[str], lists: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, "count", "smollm2-135m", *words.split())
    decoder = read_model("smollm2-135m")
    assert [side["name"] for side in found["sides"]] == names
    assert [side["tally"] for side in found["sides"]] == [kvtally.count(decoder, p).to_dict() for p in lists]


def test_what_a_cache_holds_at_the_end_of_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, "count", "gpt2", "--turns", "5+3,2+2")
    assert [side["cache"]["elements"] for side in found["sides"]] == [read_model("gpt2").held(5 + 3 + 2 + 1)] * 2


def test_the_uncached_loop_is_lesson_for_one_layer_and_forward_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert record(capsys, "count")["question"]["uncached"] == "lesson"
    assert record(capsys, "count", "gpt2")["question"]["uncached"] == "forward"
    asked = record(capsys, "count", "--uncached", "forward")
    assert asked["sides"][0]["tally"]["comparisons"][1] == {"phase": "decode", "layer": 0, "pairs": 171_699}


@pytest.mark.parametrize(
    ("words", "prompt", "new"),
    [("", 1, 100), ("--layers 2", 1, 100), ("--against executed", 1, 100), ("--chunk 4", 512, 128),
     ("--edit-at 0", 512, 128), ("gpt2", 512, 128), ("gpt2 --chunk 4 --against executed", 16, 8),
     ("--edit-at 3 --against executed", 16, 8)],
)  # fmt: skip
def test_lengths_that_are_not_given_are_those_of_the_help(
    words: str, prompt: int, new: int, capsys: pytest.CaptureFixture[str]
) -> None:
    question = record(capsys, "count", *words.split())["question"]
    assert (question["prompt"], question["new"]) == (prompt, new)


def test_chunks_are_said_to_be_equal_work_only_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Equal work: " in printed(capsys, "count", "gpt2", "--chunk", "100")
    out = printed(capsys, "count", "gpt2", "--chunk", "100", "--kernel", "dense")
    assert "Equal work: " not in out and "Chunks change the work by -" in out


def test_lengths_are_one_record_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, "count", "--lengths", "10,100")
    assert [(r["question"]["new"], r["sides"][0]["tally"]["states"]) for r in found["lengths"]] == [
        (10, 55),
        (100, 5050),
    ]


def test_csv_has_one_row_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(out.splitlines()))
    off = kvtally.count(kvtally.lesson(), kvtally.uncached(1, 100, loop="lesson"))
    found = {
        (r["phase"], int(r["layer"]), r["cell"]): int(r["value"])
        for r in rows
        if (r["side"], r["table"]) == ("without cache", "macs")
    }
    assert found == off.macs
    assert err.startswith("executed on a small copy")


def test_markdown_is_the_same_table_with_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "count", "llama-3.1-8b", "--format", "md")
    total = kvtally.count(read_model("llama-3.1-8b"), kvtally.uncached(512, 128)).total
    assert f"| total | {total:,} | " in out


def test_absorbed_counts_another_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    tally = record(capsys, "count", "deepseek-v3", "--absorbed")["sides"][1]["tally"]
    terms = {cell["term"] for cell in tally["macs"]}
    assert "q_absorb" in terms and "kv_b_proj" not in terms


@pytest.mark.parametrize("words", ["gpt2", "gemma-2-9b", "qwen3-30b-a3b", "deepseek-v3", "whisper-large-v3",
                                   "t5-base --source 12", "gpt2 --edit-at 5", "gpt2 --chunk 5",
                                   "gpt2 --turns 5+3,2+2"])  # fmt: skip
def test_executed_agrees_in_every_cell(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "count", *words.split(), "--against", "executed")
    assert "agree: " in out and "closed = executed" in out


def test_traced_agrees_in_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("transformers", reason="needs transformers")
    out = printed(capsys, "count", "gpt2", "--prompt", "3", "--new", "3", "--against", "traced")
    assert "comparisons: dense" in out
    assert "agree: 510 cells, closed = traced, on the transformers model" in out


def test_a_road_that_differs_is_named_cell_by_cell_and_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A formula that takes one decode step too many, planted in place of the closed count."""
    from kvtally.frontends import evidence
    from kvtally.pure.count_closed import count

    def one_too_many(decoder: kvtally.Decoder, passes: Any, *, kernel: str) -> kvtally.Tally:
        more = kvtally.Pass(new=1, past=23, phase="decode")
        return count(decoder, (*passes, more), kernel=kernel)

    monkeypatch.setattr(evidence, "count", one_too_many)
    out = printed(capsys, "count", "gpt2", "--against", "executed", code=1)
    assert "agree: " not in out
    assert "with cache: differ: " in out
    assert "  states[]: 24 against 23 (-1)" in out
    assert out.count(" more: --format json lists them all") == 2  # of each side the first 20 are named
    assert len([line for line in out.splitlines() if line.startswith("  ") and " against " in line]) == 2 * 20


def test_the_catalogue_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "models")
    lines = [line.split() for line in out.splitlines()]
    assert ["gemma-2-9b", "21", "window", "4,096", "+", "21", "full", "google/gemma-2-9b"] in lines
    assert max(len(line) for line in out.splitlines()) <= 80
    assert ["deepseek-v3", "61", "latent,", "MoE", "deepseek-ai/DeepSeek-V3"] in lines


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_every_verb_and_no_other(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from kvtally.frontends.cli import kvtally as group

    out = printed(capsys, *words)
    verbs = {line.split("kvtally ")[1].split()[0] for line in out.splitlines()[2:-2]}
    assert verbs == set(group.commands)
    assert max(len(line) for line in out.splitlines()) <= 80


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--version") == f"kvtally {kvtally.__version__}\n"


def test_every_option_of_count_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "count", "--help")
    from kvtally.frontends.cli import count

    assert all(option in out for parameter in count.params for option in parameter.opts if option.startswith("--"))


@pytest.mark.parametrize("words", [["count"], ["count", "llama-3.1-8b"]])
def test_json_loads_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; from kvtally.frontends.cli import main; main(sys.argv[1:]); "
        "print(*(m for m in ('numpy', 'torch', 'transformers', 'gguf', 'rich', 'asyncio', 'importlib.metadata') "
        "if m in sys.modules), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *words, "--format", "json"], capture_output=True, text=True, check=True
    )
    assert run.stderr.split() == []
    assert json.loads(run.stdout)["verb"] == "count"


def test_a_closed_pipe_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([*KVTALLY, "count"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run([*KVTALLY, "count"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (3, "stdout: cannot be written: No space left on device\n")


def test_an_encoding_without_signs_is_no_error() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    run = subprocess.run([*KVTALLY, "count"], capture_output=True, text=True, env=environment, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "5,050" in run.stdout


def test_ctrl_c_in_a_long_executed_run_ends_with_130_and_one_line() -> None:
    """The signal is sent once the process says, on entering the run, that it runs."""
    code = (
        "import sys; from kvtally.pure import count_executed; run = count_executed.execute\n"
        "def told(*a, **k):\n print('running', file=sys.stderr, flush=True); return run(*a, **k)\n"
        "count_executed.execute = told\n"
        "from kvtally.frontends.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["count", "gpt2", "--prompt", "300", "--new", "20", "--against", "executed"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        assert process.stderr.readline() == "running\n"
        time.sleep(0.2)  # into the multiplications; the run takes far longer, and an earlier signal is as good
        process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()
    assert (process.returncode, out, err) == (130, "", "kvtally: interrupted\n")
