"""A slice of the zoo on real models: one architecture of each kind, and others that change from day to day."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from kvtally.live.zoo import names, unread, version
from kvtally.live.zoo_row import Row

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
KINDS = {
    "dense": "llama",
    "grouped heads and windows": "gemma2",
    "experts": "mixtral",
    "latent attention": "deepseek_v3",
    "latent attention with an indexer": "deepseek_v32",
    "recurrent hybrid": "qwen3_next",
    "state-space model": "mamba",
    "short convolutions": "lfm2",
    "parallel hybrid": "falcon_h1",
    "encoder-decoder": "bart",
    "shared keys": "gemma3n_text",
    "composite": "gemma3",
}
A_DAY = 12


def todays() -> list[str]:
    """Twelve names, others tomorrow: every architecture has its turn within seventeen days."""
    known = names()
    first = A_DAY * date.today().toordinal()
    return [known[(first + k) % len(known)] for k in range(A_DAY)]


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    wanted = ",".join(dict.fromkeys([*KINDS.values(), *todays()]))
    command = [sys.executable, "-m", "kvtally", "zoo", "-n", "2", "--only", wanted, "--format", "json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.stdout, told.stderr
    return {row["name"]: Row.from_dict(row) for row in json.loads(told.stdout)["rows"]}


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_each_kind_is_built_run_read_held_and_traced(kind: str, rows: dict[str, Row]) -> None:
    row = rows[KINDS[kind]]
    assert all(outcome.ok for outcome in row.outcomes.values()), row
    assert row.cells > 100


def test_nothing_said_of_todays_architectures_is_wrong(rows: dict[str, Row]) -> None:
    assert set(todays()) <= set(rows)
    wrong = [row for row in rows.values() if row.wrong]
    assert not wrong, wrong


def test_the_page_has_a_row_for_every_architecture_of_the_installed_transformers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"transformers {version()}" in page
    assert re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE) == list(names())


def test_new_names_what_is_not_read() -> None:
    command = [sys.executable, "-m", "kvtally", "zoo", "--new"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^(\S+): not read: model_type `\1`$", told, flags=re.MULTILINE)
    assert listed == list(unread())
    assert listed or told == "every architecture of the installed transformers is read\n"
