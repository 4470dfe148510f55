"""What `kvtally zoo` says where the question is wrong, and what its page says of rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from kvtally.frontends.cli import main
from kvtally.frontends.zoo import summary
from kvtally.live.zoo import version
from kvtally.live.zoo_row import GOOD, Outcome, Row


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--only", "lama"], 2, "`--only` has `lama`, expected causal LMs of transformers; nearest: `llama`"),
        (["-n", "0"], 2, "`-n` is 0, expected an integer of at least 1"),
        (["-n", "many"], 2, "`-n` is 'many', expected an integer of at least 1"),
        (["--format", "csv"], 2, "`--format` is 'csv'; known: `json`, `md`, `table`"),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", *words]) == code
    assert said in capsys.readouterr().err


def test_results_of_something_else_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"name": "llama"}\n')
    assert main(["zoo", "--only", "llama", "--results", str(file)]) == 3
    assert "has a line that is no row of the zoo, expected what --results wrote" in capsys.readouterr().err


KEPT = Row(name="llama", built=GOOD, ran=GOOD, read=GOOD, held=GOOD, traced=GOOD, transformers=version())
LINE = json.dumps(KEPT.to_dict()) + "\n"


@pytest.mark.parametrize("text", [LINE + "[" * 100_000 + "\n", LINE + "mine", '{"name": 3}\n', "[]\n", '{"na"'])
def test_a_line_that_is_no_row_is_refused_and_the_file_stays(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(text)
    cut = text == '{"na"'
    assert main(["zoo", "--only", "nope" if cut else "llama", "--results", str(file)]) == (2 if cut else 3)
    assert ("no row of the zoo" in capsys.readouterr().err) is not cut
    assert file.read_text() == text


@pytest.mark.parametrize("length", [1, 5, 9, 30, -1])
def test_a_row_cut_short_is_dropped_with_a_note(
    length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(LINE + LINE.replace("llama", "gpt2")[:length])
    assert main(["zoo", "--only", "llama", "--results", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("architecture") and err == f"{file}: the last row was cut short, and is left out\n"
    assert file.read_text() == LINE


@pytest.mark.parametrize(("place", "reason"), [("/nowhere/a", "No such file or directory"),
                                               ("x" * 300, "File name too long"), ("/", "Is a directory")])  # fmt: skip
def test_results_that_cannot_be_kept_are_named_before_anything_runs(
    place: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", "--only", "llama", "--results", place]) == 3
    hint = "\n\nhint: choose another file for --results\n"
    assert capsys.readouterr() == ("", f"{place}: cannot be written: {reason}{hint}")


def test_a_table_that_cannot_be_written_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that goes while the sweep runs."""
    import shutil

    from kvtally.frontends import zoo

    def gone(*_: object) -> str:
        shutil.rmtree(tmp_path / "there")
        return "the table"

    file = tmp_path / "results.jsonl"
    file.write_text(LINE)
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(zoo, "_text", gone)
    assert main(["zoo", "--only", "llama", "--results", str(file), "--out", str(tmp_path / "there" / "t")]) == 3
    out, err = capsys.readouterr()
    assert out == "the table\n" and "cannot be written: No such file or directory" in err


def test_rows_that_are_kept_are_shown_without_running_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "results.jsonl", tmp_path / "zoo.md"
    no = Outcome(ok=False, note="layer 1: 3 against 4 | in <the> cache")
    kept = [
        Row(name="llama", layers=2, built=GOOD, ran=GOOD, read=GOOD, held=no, traced=GOOD, transformers=version()),
        Row(name="mamba", built=GOOD, ran=GOOD, read=GOOD, held=GOOD, traced=GOOD, unseen={"conv1d": 4}, cells=1234,
            transformers=version()),
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in kept))
    words = ["zoo", "--only", "mamba,llama", "--results", str(file), "--format", "md", "--out", str(page)]
    assert main(words) == 1  # what is held is not so
    text = page.read_text()
    assert "| `llama` |  | 2 | yes | yes | yes | no | yes |  |  |  |" in text
    assert "| `mamba` |  |  | yes | yes | yes | yes | yes | 1234 | 4 conv1d |  |" in text
    assert "- `llama`: held: layer 1: 3 against 4 \\| in &lt;the> cache" in text
    assert summary(kept)[3] == "1 of 2 hold what their real cache holds"
    assert capsys.readouterr() == ("", "")
