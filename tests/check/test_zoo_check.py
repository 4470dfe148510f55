"""The checked zoo: its rows, its page, where a run goes on, and two real architectures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from kvtally.core.errors import KvtallyError
from kvtally.frontends import check_zoo as frontend
from kvtally.live.zoo import version
from kvtally.live.zoo_check import CheckRow
from kvtally.live.zoo_row import GOOD, Outcome

GOOD_ROW = CheckRow(name="llama", model="LlamaForCausalLM", built=GOOD, ran=GOOD, groups={"steps": "rounding"},
                    transformers=version())  # fmt: skip
BAD_ROW = CheckRow(name="mamba", built=GOOD, ran=GOOD, groups={"steps": "DEFECT", "edit": "unsupported"},
                   found=("steps: chunks of 3: DEFECT | error <1>",), transformers=version())  # fmt: skip
UNBUILT = CheckRow(name="rwkv", built=Outcome(ok=False, note="took longer"), transformers=version())


@pytest.mark.parametrize("row", [GOOD_ROW, BAD_ROW, UNBUILT])
def test_a_row_is_read_back_as_it_was_written(row: CheckRow) -> None:
    assert CheckRow.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_what_is_wrong() -> None:
    assert [row.wrong for row in (GOOD_ROW, BAD_ROW, UNBUILT)] == [False, True, False]
    assert CheckRow(name="x", built=GOOD, ran=Outcome(ok=False)).wrong


def test_the_page_is_made_of_rows_that_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    file.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in (BAD_ROW, GOOD_ROW, UNBUILT)))
    found = frontend.check_zoo(only="llama,mamba,rwkv", results=str(file), form="md", out=str(page))
    assert found == 1
    text = page.read_text()
    assert "| `llama` |  | rounding |" in text
    assert "| `mamba` |  | DEFECT |  |  | unsupported |" in text
    assert "- `mamba`: steps: chunks of 3: DEFECT \\| error &lt;1>" in text
    assert "- `rwkv`: took longer" in text
    assert "2 of 3 architectures were built and checked" in text
    assert "1 of them have a defect, in 1 scenario groups together" in text
    assert capsys.readouterr() == ("", "")


def test_a_run_that_is_stopped_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvtally.live import zoo_sweep

    def interrupted(names: list[str], **asked: Any) -> Any:
        yield GOOD_ROW
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo_sweep, "sweep", interrupted)
    file = tmp_path / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        frontend.check_zoo(only="llama,mamba", results=str(file), form="table")
    assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["llama"]
    assert "1 of 1 architectures were built and checked" in capsys.readouterr().out


BEFORE = (
    replace(GOOD_ROW, groups={"steps": "DEFECT", "edit": "rounding"}, transformers="5.1.0"),
    replace(BAD_ROW, name="gpt2", transformers="5.1.0"),
    replace(UNBUILT, name="mamba", transformers="5.1.0"),
)


def test_what_differs_from_an_earlier_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for file, rows in ((old, BEFORE), (new, (GOOD_ROW, BAD_ROW, UNBUILT))):
        file.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in rows))
    changed = frontend.changes(BEFORE, (GOOD_ROW, BAD_ROW, UNBUILT))
    assert [change.text for change in changed if change.name != "mamba"] == [
        "gpt2: gone: DEFECT",
        "llama: steps: DEFECT -> rounding",
        "llama: edit: rounding -> nothing",
        "rwkv: new: did not run",
    ]
    assert [change.text for change in changed if change.name == "mamba"][1:3] == [
        "mamba: steps: did not run -> DEFECT",
        "mamba: static: did not run -> nothing",
    ]
    asked = {"only": "llama,mamba,rwkv", "results": str(new), "against": str(old)}
    assert frontend.check_zoo(form="table", **asked) == 1
    out = capsys.readouterr().out
    assert "12 verdicts changed\n" in out  # 2 of llama, 9 of mamba, 1 new: gpt2 was not asked for
    assert "llama: steps: DEFECT -> rounding\n" in out
    assert "gone" not in out
    frontend.check_zoo(form="md", **asked)
    assert "## What changed\n\n- llama: steps: DEFECT -> rounding\n" in capsys.readouterr().out
    frontend.check_zoo(form="json", **asked)
    first = json.loads(capsys.readouterr().out)["changes"][0]
    assert first == {"name": "llama", "group": "steps", "before": "DEFECT", "after": "rounding"}


def test_nothing_differs_from_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(GOOD_ROW.to_dict()) + "\n")
    assert frontend.check_zoo(only="llama", results=str(file), against=str(file)) == 0
    assert capsys.readouterr().out.endswith("\n0 verdicts changed\n")


def test_a_stopped_run_says_of_nothing_that_it_is_gone() -> None:
    assert [change.text for change in frontend.changes(BEFORE, [GOOD_ROW], whole=False)] == [
        "llama: steps: DEFECT -> rounding",
        "llama: edit: rounding -> nothing",
    ]


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    """A real process: interrupted when its first row is there, while the second architecture is at work."""
    file, out = tmp_path / "rows.jsonl", tmp_path / "table.txt"
    words = ["check", "--zoo", "--only", "gpt2,mixtral", "--results", str(file), "--out", str(out)]
    run = subprocess.Popen([sys.executable, "-m", "kvtally", *words], stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    line = next(line for line in run.stderr if line.startswith("1/2 "))
    run.send_signal(signal.SIGINT)
    rest = run.stderr.read()
    assert (line, run.wait()) == ("1/2 gpt2: good\n", 130)
    assert "Traceback" not in rest and rest.endswith("kvtally: interrupted\n")
    assert [json.loads(row)["name"] for row in file.read_text().splitlines()] == ["gpt2"]
    assert "1 of 1 architectures were built and checked" in out.read_text()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"only": "lama"}, "nearest: `llama`"),
        ({"jobs": "0"}, "`-n` is 0, expected an integer of at least 1"),
        ({"form": "csv"}, "`--format` is 'csv'; known: `json`, `md`, `table`"),
        ({"engine": "spark"}, "`--engine` is 'spark'; known: `local`, `ray`"),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(asked: dict[str, str], said: str) -> None:
    with pytest.raises(KvtallyError, match=said.replace("(", r"\(")):
        frontend.check_zoo(**asked)


def test_two_real_architectures(tmp_path: Path) -> None:
    page = tmp_path / "rows.json"
    assert frontend.check_zoo(only="llama,mamba", form="json", out=str(page)) == 1
    llama, mamba = json.loads(page.read_text())["rows"]
    assert set(llama["groups"].values()) <= {"same", "rounding", "unsupported"}
    assert mamba["groups"]["steps"] == "DEFECT"  # docs/found/mamba_chunks.md
