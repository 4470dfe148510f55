"""The page as a file, the decoders it knows, and reports as text; what a browser shows is in tests/browser."""

from __future__ import annotations

import json
import re
import webbrowser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtally import InputError, lesson
from kvtally.frontends.cli import main
from kvtally.frontends.explore.write import SCRIPTS, html, inert, page, presets
from kvtally.frontends.report import Bars, Group, Report
from kvtally.frontends.report import html as report_html
from kvtally.frontends.sizes import Sizes, sizes_of
from kvtally.pure.model import read_model

HOSTILE = "</script><script>alert(1)</script>\"'&\u202e" + "w" * 10_000


def test_the_page_is_one_small_file_that_asks_for_nothing() -> None:
    text = html()
    assert len(text.encode()) < 120_000
    assert set(re.findall(r"https?://[\w.]+", text)) == {"http://www.w3.org"}  # a namespace, never fetched
    assert set(re.findall(r"(?:src|href)=\"([^\"]*)\"", text)) == {"data:,"}
    assert not re.findall(r"/\*(STYLE|SCRIPT|DATA)\*/|@import|url\(", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_stays_under_400_lines_and_a_function_under_40(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") < 400
    for body in re.findall(r"^(?:async )?function [^\n]*\n(.*?)^}", text, re.MULTILINE | re.DOTALL):
        assert body.count("\n") < 40, body[:80]


def test_presets_are_the_catalogues_decoders() -> None:
    found = presets()
    assert {"gpt2", "llama-2-7b", "llama-3.1-8b", "mistral-7b-v0.1", "qwen2.5-7b", "qwen3-8b"} <= set(found)
    for name, sizes in found.items():
        assert sizes.decoder() == read_model(name)


@given(
    st.builds(
        Sizes,
        layers=st.integers(1, 5),
        hidden=st.integers(1, 99),
        heads=st.sampled_from([6, 12]),
        kv_heads=st.sampled_from([1, 2, 3]),
        head_dim=st.integers(1, 99),
        mlp=st.integers(1, 99),
        gated=st.booleans(),
        o_proj=st.booleans(),
        vocab=st.integers(0, 99),
        window=st.integers(0, 99),
    )
)
def test_sizes_come_back_from_the_decoder_they_make(sizes: Sizes) -> None:
    assert sizes_of(sizes.decoder()) == sizes


@pytest.mark.parametrize("name", ["gemma-2-9b", "mixtral-8x7b", "deepseek-v3"])
def test_a_decoder_without_such_sizes_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"`{name}` has layers of several kinds, experts or another attention"):
        sizes_of(read_model(name))


def test_explore_writes_the_page_and_opens_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or True)
    path = tmp_path / "page.html"
    assert main(["explore", "--out", str(path), "--model", "gpt2"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert asked == [path.as_uri()]
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert data and json.loads(data[1])["model"] == "gpt2"
    assert main(["explore", "--out", str(path), "--no-open"]) == 0
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("explore --model gpt3 --no-open", 2, "explore: `gpt3` is no file, no folder and not in the catalogue"),
        ("explore --model deepseek-v3 --no-open", 2, "explore: `deepseek-v3` has layers of several kinds"),
        ("explore --out /nowhere/page.html --no-open", 3, "/nowhere/page.html: cannot be written: No such file"),
        ("count --new 2 --html /nowhere/page.html", 3, "/nowhere/page.html: cannot be written: No such file"),
        ("count gpt2 --heads 4", 2, "`--heads` and MODEL are both given, expected one of them"),
        ("count --heads four", 2, "`--heads` is 'four', expected an integer of at least 1"),
        ("count --heads 3 --kv-heads 2", 2, "`num_heads` is 3 and `num_kv_heads` is 2"),
        ("count --window -1", 2, "`--window` is -1, expected an integer of at least 0"),
    ],
)
def test_a_wrong_request_is_named(words: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == code
    assert capsys.readouterr().err.startswith(said)


def test_a_decoder_by_its_sizes_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "count --layers 1 --hidden 64 --heads 1 --kv-heads 1 --head-dim 64 --mlp 0 --vocab 0 --window 0 --format json"
    )
    assert main(words.split()) == main(["count", "--format", "json"]) == 0
    by_sizes, alone = (json.loads("{" + part) for part in re.split(r"^\{", capsys.readouterr().out, flags=re.M)[1:])
    assert by_sizes["sides"] == alone["sides"]
    assert Sizes().decoder() == lesson()


def test_names_cannot_leave_the_data_they_stand_in() -> None:
    assert "</script>" not in inert({"name": HOSTILE})
    assert json.loads(inert({"name": HOSTILE})) == {"name": HOSTILE}
    text = page({HOSTILE: Sizes(), "/*DATA*/": Sizes()}, HOSTILE)
    assert text.count("</script>") == html().count("</script>") == 2


def test_a_report_escapes_cuts_and_isolates_every_string() -> None:
    bars = Bars(names=(HOSTILE, HOSTILE), rows=[(HOSTILE, 2, 0)])
    text = report_html(
        Report(
            title=HOSTILE,
            about=[HOSTILE],
            command=[HOSTILE],
            bars=bars,
            heads=[HOSTILE],
            groups=[Group(title=HOSTILE, rows=[(HOSTILE, HOSTILE)])],
            notes=[HOSTILE],
        )
    )
    assert "<script" not in text and "</script" not in text
    assert "w" * 500 not in text
    assert set(re.findall(r"https?://[\w.]+", text)) == set()
