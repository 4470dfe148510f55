"""What `kvtally zoo` says where the question is wrong, and what its page says of rows."""

from __future__ import annotations

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


def test_rows_that_are_kept_are_shown_without_running_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

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
