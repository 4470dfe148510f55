"""Tables of Markdown, and every command that prints one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtally.frontends.cli import main
from kvtally.frontends.markdown import markdown_table

ROOT = Path(__file__).parents[2]


def test_columns_of_numbers_stand_to_the_right_and_a_bar_ends_no_cell() -> None:
    assert markdown_table(("", "a|b"), [(" x ", 7), ("y", "")]).splitlines() == [
        "|  | a\\|b |",
        "| --- | --- |",
        "| x | 7 |",
        "| y |  |",
    ]
    assert markdown_table(("a", "b", "c"), [], numbers=True).splitlines() == ["| a | b | c |", "| :-- | --: | --: |"]


@pytest.mark.parametrize(
    "asked",
    [
        ("count", "gpt2"),
        ("count", "gpt2", "--lengths", "10,20"),
        ("size", "gpt2", "--memory", "80GiB"),
        ("facts", "gpt2"),
        ("models",),
        ("replay", str(ROOT / "docs" / "agents.jsonl")),
    ],
    ids=" ".join,
)
def test_every_row_has_as_many_cells_as_its_head(asked: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--format", "md"]) == 0
    rows = [line.replace("\\|", "").count("|") for line in capfd.readouterr().out.splitlines()]
    tables = "".join(f"{bars} " if bars else "\n" for bars in rows).split("\n")
    found = [set(block.split()) for block in tables if block]
    assert found and all(len(bars) == 1 for bars in found)
