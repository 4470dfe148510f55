"""Wrong questions to `kvtally round`: every message pinned, exit code and all; and its formats."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from kvtally.frontends.cli import main
from kvtally.frontends.round_question import RoundQuestion, answer
from kvtally.frontends.round_text import as_text
from kvtally.pure import catalogue

BIG = 5000 * "9"
OWN = "hint: what a cache of your own keeps, you can round yourself: kvtally.live.schemes.rounded"
PINNED = [
    ("round", 2, "MODEL is missing, expected one, or `--dial`\n\nhint: kvtally round llama"),
    ("round llama --format xml", 2, "`--format` is 'xml'; known: `csv`, `json`, `md`, `table`"),
    ("round llama --tokens 1", 2, "`--tokens` is 1, expected an integer of at least 2 and at most 1,000,000"),
    (
        "round llama --tokens 1000000000000",
        2,
        "`--tokens` is 1,000,000,000,000, expected an integer of at least 2 and at most 1,000,000",
    ),
    (f"round llama --group {BIG}", 2, f"`--group` is '{BIG[:40]}…', expected an integer of at least 0"),
    *(
        (f"round llama {flag} ''", 2, f"`{said}` is '', expected a type\n\nhint: kvtally round --help lists them")
        for flag, said in {
            "--kv-cache-dtype": "--kv-cache-dtype",
            "-ctk": "--k-dtype",
            "-ctv": "--v-dtype",
            "--state-dtype": "--state-dtype",
        }.items()
    ),
    ("round --dial --tokens ''", 2, "`--tokens` is given with `--dial`, where it means nothing"),
    (
        "round mine:adapter --full-size",
        2,
        "mine:adapter: `--full-size` is given and the model has its size, expected a config alone",
    ),
    ("round os:getcwd", 2, f"os:getcwd: `model` is a str, expected a transformers model\n\n{OWN}"),
    ("round llama --residual x", 2, "`--residual` is 'x', expected an integer of at least 0"),
    ("round llama --axis head", 2, "`--axis` is 'head'; known: `channel`, `token`"),
    ("round llama --text a --prompt b", 2, "`--text` and `--prompt` are both given, expected one of them"),
    (
        "round llama --kv-cache-dtype int8 --k-dtype int4",
        2,
        "`--kv-cache-dtype` and `--k-dtype` are both given, expected one of them",
    ),
    ("round llama --text nowhere.txt", 3, "nowhere.txt: cannot be read: No such file or directory, expected a text"),
    ("round llama --text empty.txt", 2, "empty.txt: the text is empty, expected at least 2 tokens"),
    ("round llama --text latin.txt", 3, "latin.txt: cannot be read: not UTF-8, expected a text"),
    (
        "round llama --prompt hello",
        2,
        "llama: a text is given and there is no tokenizer, expected --tokens N for random tokens\n\n"
        "hint: name a folder with weights and a tokenizer, a .gguf file or a Hugging Face id",
    ),
    (
        "round llama --kv-cache-dtype int4 --axis channel",
        2,
        "`group` is None for the axis 'channel'; known: `32`, `64`\n\nhint: by channel a group is a number of tokens",
    ),
    (
        "round llama --kv-cache-dtype int4 --group 7",
        2,
        "`group` is 7 for the axis 'token'; known: `32`, `64`, `head`",
    ),
    (
        "round llama --v-dtype int4 --axis channel --group 32",
        2,
        "`axis` is 'channel' and K is exact, expected a type for K\n\nhint: only K is rounded by channel",
    ),
    ("round --dial llama", 2, "`MODEL` is given with `--dial`, where it means nothing"),
    ("round --dial --tokens 9", 2, "`--tokens` is given with `--dial`, where it means nothing"),
    ("round --dial --format csv", 2, "`--format` is 'csv'; known: `json`, `table`"),
    ("round nowhere.gguf", 3, "nowhere.gguf: no such file, expected a .gguf file"),
    ("round mine:adapter", 2, f"mine:adapter: `model` is an Adapter, expected a transformers model\n\n{OWN}"),
    (
        "round mamba --kv-cache-dtype bf16 --tokens 9",
        2,
        "nothing was rounded: the cache of MambaForCausalLM was given no K and V, expected attention\n\n"
        "hint: recurrent states are rounded with state_dtype, in caches that keep them in `recurrent_states`",
    ),
    (
        "round llama --kv-cache-dtype int8 --tokns 9",
        2,
        "kvtally round: no option `--tokns`; nearest: `--tokens`\n\nhint: kvtally round --help lists them all",
    ),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes("Türme".encode("latin-1"))
    (tmp_path / "mine.py").write_text(
        "from kvtally.live import Adapter\n"
        "def adapter():\n    return Adapter(full=None, extend=None, fresh=None, vocab_size=3)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(("line", "code", "said"), PINNED, ids=[line[:50] for line, *_ in PINNED])
def test_message(line: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = main(shlex.split(line))
    out, err = capsys.readouterr()
    assert (found, out) == (code, "")
    assert err.strip().endswith(said), err


def test_an_unknown_type_is_named_before_a_model_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["round", "no/such-model", "--kv-cache-dtype", "int8,int3"]) == 2
    assert "is 'int3'; known: `fp32`" in capsys.readouterr().err


ASKED = ["round", "llama", "--kv-cache-dtype", "bf16,int4", "--tokens", "36"]
PARTS = ["K and V", "K only", "V only"]


def test_every_format_says_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*ASKED, "--html", str(tmp_path / "page.html")]) == 0
    found = answer(RoundQuestion(model="llama", dtypes=("bf16", "int4"), tokens=36))
    said = {form: as_text(found, form) for form in ("table", "md", "csv", "json")}
    assert capsys.readouterr().out == said["table"] + "\n"
    record = json.loads(said["json"])
    assert [(r["dtype"], r["part"]) for r in record["rows"]] == [(d, p) for d in ("bf16", "int4") for p in PARTS]
    assert [(r["dtype"], r["part"]) for r in record["compared"]] == [("int4", "K by token"), ("int4", "K by channel")]
    lines = list(csv.DictReader(io.StringIO(said["csv"])))
    both = [*record["rows"], *record["compared"]]
    assert [float(line["kl_mean"]) for line in lines] == [r["kl_mean"] for r in both]
    assert [int(line["bytes_kept"]) for line in lines] == [r["bytes_kept"] for r in both]
    assert all(len(line) <= 80 for line in said["table"].splitlines())
    page = (tmp_path / "page.html").read_text()
    for r in both:
        figure = f"{r['kl_mean']:.1e}"
        assert figure in said["table"] and figure in said["md"] and figure in page
    assert "Error of K as int4, by layer and head" in page and "Error of V as int4, by layer and head" in page
    assert "within check's screen, 5e-06 of the largest logit: none of these" in said["table"]


def test_k_and_v_of_two_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["round", "llama", "-ctk", "int8", "-ctv", "int4", "--tokens", "9", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [(r["dtype"], r["k"], r["v"]) for r in record["rows"]] == [
        ("int8 / int4", "int8", "int4"), ("int8 / int4", "int8", "exact"), ("int8 / int4", "exact", "int4")
    ]  # fmt: skip
    assert main(["round", "llama", "-ctv", "int4", "--tokens", "9"]) == 0
    assert "exact / int4, V only" in capsys.readouterr().out


LEFT_OUT = "K by token and by channel"


@pytest.mark.parametrize("name", catalogue.names())
def test_every_name_of_the_catalogue_is_rounded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a row of K is wide: what nobody asked for is left out where groups of 32 do not fit."""
    assert main(["round", name, "--tokens", "40", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [r["part"] for r in record["rows"]] == 4 * PARTS
    assert not (record["compared"] and LEFT_OUT in record["conventions"])


def test_the_comparison_that_is_left_out_is_said() -> None:
    found = answer(RoundQuestion(model="gpt2", dtypes=("int8",), tokens=40))
    assert found.conventions[LEFT_OUT] == "left out: a row of K is 16 wide, a group 32"
    assert (len(found.rows), found.compared) == (3, ())
    assert f"{LEFT_OUT}: left out: a row of K is 16 wide, a group 32." in as_text(found, "table").replace("\n", " ")
    asked = answer(RoundQuestion(model="gpt2", dtypes=("bf16",), tokens=40))
    assert LEFT_OUT not in asked.conventions, "it has no type to compare"


def test_the_dial_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["round", "--dial"]) == 0
    assert "int4" in capsys.readouterr().out
