"""`kvtally size` as people see it: the table, the formats, exit codes, picture, page."""

from __future__ import annotations

import csv
import io
import json
import re
from fractions import Fraction
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvtally.core.passes import LONGEST
from kvtally.frontends.cli import main
from kvtally.frontends.plot import Curve, svg
from kvtally.frontends.size_question import Memory, SizeQuestion, answer
from kvtally.pure.catalogue import names
from kvtally.pure.model import read_model


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["size", *words]) == code
    return capsys.readouterr().out


def closed_up(text: str) -> list[str]:
    """The lines, a single space between words."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_multiplications_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    lines = closed_up(printed(capsys, "llama-3.1-8b"))
    assert "K and V, all tokens 2 × 32 × 8 × 32,768 × 128 × 2 4.0 GiB" in lines
    assert "a request 4,294,967,296 B 4.0 GiB" in lines
    assert "one token more 131,072 B 128.0 KiB" in lines


def test_layers_of_two_kinds_make_two_lines_and_a_batch_one_more(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "gemma-3-27b", "--batch", "3", "--kv-cache-dtype", "q8_0", "--engine", "llama.cpp")
    lines = closed_up(out)
    assert "K and V, ≤ 1,024 2 × 52 × 16 × 1,024 × 128 × 1.0625 221.0 MiB" in lines
    assert f"3 requests {3 * (2 * 52 * 16 * 1024 + 2 * 10 * 16 * 32768) * 136:,} B 4.6 GiB" in lines
    assert [line for line in lines if line.startswith(("transformers", "vllm", "sglang"))] == []


@pytest.mark.parametrize("model", names())
def test_the_table_stays_narrow(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = ["--source", "1500"] if model in ("t5-base", "whisper-large-v3") else []
    main(["size", model, "--memory", "80GiB", "--roofline", *source])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 75


def test_what_fits_is_what_memory_has_left_of_weights(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3.1-8b", "--memory", "80GiB", "--weights", "16060522496", "--format", "json", "--batch", "2")
    found = json.loads(printed(capsys, *words))
    free = 80 * 2**30 * 9 // 10 - 16_060_522_496
    held = found["rooms"][0]
    assert found["question"]["memory"]["free"] == free
    assert held["requests"] == free // (131_072 * 32_768)  # all layers attend to everything: division is right here
    assert held["longest"] == free // (131_072 * 2)
    assert {"options": "--kv-cache-dtype fp8", "requests": free // (65_536 * 32_768)} in found["try"]
    assert {"options": "--tokens 16384", "requests": free // (131_072 * 16_384)} in found["try"]


def test_devices_share_weights_and_heads() -> None:
    memory = Memory(total=10**9, used=Fraction(1, 2), weights=10**8 + 1, devices=4)
    assert (memory.share, memory.free) == (25_000_001, 474_999_999)
    q = SizeQuestion(decoder=read_model("llama-3.1-8b"), tokens=1000, devices=8)
    assert answer(q).request == 131_072 // 8 * 1000


def test_a_block_size_is_for_the_engines_with_pages(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "gpt2", "--tokens", "100", "--block-size", "64")
    reserved = dict(re.findall(r"^  (\S+) +([\d,]+) ", text, re.MULTILINE))
    assert reserved["vllm"] == "7,077,888", "100 tokens in 2 pages of 64, and the null page: 3 * 64 * 36,864"
    assert reserved["transformers"] == "3,686,400", "100 * 36,864"


def test_what_does_not_fit_is_answered_by_1(capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "llama-3.1-8b", "--memory", "4GiB", code=1)
    printed(capsys, "llama-3.1-8b", "--memory", "5GiB", "--batch", "1")
    printed(capsys, "llama-3.1-8b", "--memory", "5GiB", "--batch", "2", code=1)


def test_json_is_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "gpt2", "--tokens", "100", "--format", "json", "--facts", "--roofline"))
    record = answer(
        SizeQuestion(decoder=read_model("gpt2"), tokens=100, engines=("transformers", "vllm", "sglang", "llama.cpp"))
    )
    for name, value in record.to_dict().items():
        assert found[name] == json.loads(json.dumps(value)), name
    assert found["facts"][0] == {"name": "num_hidden_layers", "value": 12, "source": "n_layer", "note": ""}
    assert found["roofline"]["ridge"] == 295


def test_csv_has_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "gpt2", "--tokens", "10", "--format", "csv"))))
    held = [int(row["bytes"]) for row in rows if row["name"] == "held"]
    assert held == [10 * 768 * 2] * 24
    assert {row["name"] for row in rows} == {"held", "transformers", "vllm", "sglang", "llama.cpp"}


def test_csv_says_what_fits_where_a_memory_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpt2", "--memory", "1GiB", "--batch", "1000", "--format")
    rows = list(csv.DictReader(io.StringIO(printed(capsys, *words, "csv", code=1))))
    record = json.loads(printed(capsys, *words, "json", code=1))
    expected = {room["name"]: (room["requests"], room["longest"]) for room in record["rooms"]}
    assert {row["name"]: (int(row["requests"]), int(row["longest"])) for row in rows} == expected
    assert "requests" not in next(csv.DictReader(io.StringIO(printed(capsys, "gpt2", "--format", "csv"))))


def test_markdown_has_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "llama-3.1-8b", "--format", "md")
    assert "| K and V, all tokens | 2 | 32 | 8 | 32,768 | 128 | 2 | 4,294,967,296 |" in out


def test_a_state_has_no_longest_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "mamba2", "num_hidden_layers": 3}')
    out = printed(capsys, str(path), "--memory", "1GiB", "--engine", "transformers", "--format", "json")
    assert json.loads(out)["rooms"][0]["longest"] == LONGEST
    assert "no limit" in printed(capsys, str(path), "--memory", "1GiB", "--engine", "transformers")


def test_the_roofline_says_what_batching_does_not_move(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "llama-3.1-8b", "--roofline", "--fast-memory", "50MiB", "--ridge", "989e12/3.35e12")
    said = " ".join(out.split())
    assert "weights reach the ridge from batch 296; the whole step at no batch" in said
    assert "never the attention over the cache: 4.0 FLOP/B at most" in said
    assert "outgrow 50.0 MiB from 5,121 tokens on" in said


def test_a_log_line_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "llama_kv_cache: size = {} MiB ( 32768 cells, 32 layers, 1/1 seqs), K (f16): 2048.00 MiB, V (f16): 2048.00 MiB"
    )
    assert "4096.00 MiB" in printed(capsys, "llama-3.1-8b", "--explain", line.format("4096.00"))
    printed(capsys, "gpt2", "--explain", line.format("4096.00"), code=1)


def test_the_picture_is_well_formed_and_its_memory_is_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "bytes.svg"
    words = ["size", "llama-3.1-8b", "--memory", "80GiB", "--also", "llama-3.1-8b:q4_0,gemma-3-27b"]
    assert main([*words, "--plot", str(path)]) == 0
    root = ElementTree.fromstring(path.read_text())
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}path")) == 3
    texts = [text.text for text in root.findall(f"{space}text")]
    assert {"llama-3.1-8b bf16", "llama-3.1-8b q4_0", "gemma-3-27b bf16", "memory 72.0 GiB"} <= set(texts)
    for path_drawn in root.findall(f"{space}path"):  # bytes never fall: y never grows
        ys = [float(point.split()[1]) for point in path_drawn.attrib["d"][1:].split("L")]
        assert ys == sorted(ys, reverse=True)


def test_a_name_paints_nothing_into_the_picture() -> None:
    picture = svg([Curve(name='<script>"', points=[(256, 8), (512, 16)])], title="</title><script>")
    assert "<script>" not in picture
    ElementTree.fromstring(picture)


def test_the_page_has_every_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "size.html"
    printed(capsys, "llama-3.1-8b", "--html", str(path), "--memory", "80GiB")
    page = path.read_text()
    assert "2 × 32 × 8 × 32,768 × 128 × 2" in page
    assert "4,294,967,296" in page
    assert "kvtally</bdi> <bdi>size" in page


def test_the_page_has_what_stands_below_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "size.html"
    out = printed(capsys, "gpt2", "--html", str(path), "--roofline", "--facts")
    page = path.read_text()
    sections = re.findall(r"<section><h2><bdi>(\w+)</bdi></h2>.*?<pre>(.*?)</pre>", page, re.DOTALL)
    shown = {title: re.sub("<[^>]+>", "", text) for title, text in sections}
    assert list(shown) == ["Roofline", "Facts"]
    assert out.endswith("\n\n".join(unescape(text) for text in shown.values()) + "\n")


def test_the_page_has_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="--measure builds a real model")
    path = tmp_path / "size.html"
    printed(capsys, "gpt2", "--tokens", "16", "--html", str(path), "--measure")
    assert "<bdi>Measured</bdi>" in path.read_text() and "12 layers agree" in path.read_text()
