"""The pages that are written by scripts are what the scripts would write now."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest

from docs import cli_reference, json_fields, roads
from kvtally.frontends.cli import kvtally, main

DOCS = Path(__file__).parents[2] / "docs"
OTHER = {  # of each verb another question than those that the page was written from
    "count": ["count", "count llama-3.1-8b --prompt 7 --new 2 --kernel dense --batch 2", "count gpt2 --chunk 3"],
    "size": ["size gemma-2-9b --tokens 5000 --memory 24GB", "size gpt2 --kv-cache-dtype q8_0"],
    "size --explain": ["size gpt2 --explain 'Available KV cache memory: 5.38 GiB'"],
    "facts": ["facts mixtral-8x22b", "facts gpt2"],
    "models": ["models"],
    "check": ["check gpt2 --scenarios batch"],
    "check --zoo": ["check --zoo --only mamba"],
    "round --dial": ["round --dial"],
    "round": ["round gpt2 --tokens 6 --kv-cache-dtype int8"],
    "replay": [f"replay {json_fields.TRACE} --model llama-3.1-8b"],
    "zoo": ["zoo --only gpt2"],
}
NEEDS = {"check": "transformers", "round": "transformers", "zoo": "transformers", "replay": "pyarrow"}


def test_the_command_line_is_the_page() -> None:
    assert cli_reference.page() == cli_reference.PAGE.read_text(), "run: python tests/docs/cli_reference.py"


def test_the_docstrings_are_the_page() -> None:
    pytest.importorskip("transformers", reason="kvtally.live needs PyTorch and transformers")
    from docs import python_api

    assert python_api.page() == python_api.PAGE.read_text(), "run: python tests/docs/python_api.py"


@pytest.mark.parametrize("verb", OTHER)
def test_json_has_no_field_that_the_page_does_not_list(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    if verb.partition(" ")[0] in NEEDS and verb != "round --dial":
        pytest.importorskip(NEEDS[verb.partition(" ")[0]])
    json_fields.written()
    known = json_fields.known(verb)
    for question in OTHER[verb]:
        assert main([*shlex.split(question), "--format", "json"]) in (0, 1), question
        record = json.loads(capsys.readouterr().out)
        assert next(iter(record.items())) == ("verb", verb.partition(" ")[0])
        for path, value in json_fields.fields(record):
            kind = json_fields.kind(value)
            fits = known.get(path, set()) & {kind, "number" if kind == "integer" else kind}
            assert fits, f"{question}: `{path}` is {kind}; run: python tests/docs/json_fields.py"


def test_every_verb_answers_in_json_or_makes_no_numbers() -> None:
    formatted = {
        name for name, command in kvtally.commands.items() if any("--format" in p.opts for p in command.params)
    }
    assert set(OTHER) == set(json_fields.ASKED)
    assert formatted == {verb.partition(" ")[0] for verb in OTHER}
    assert set(kvtally.commands) - formatted == {"explore", "lab"}


@pytest.mark.parametrize("name", kvtally.commands)
def test_a_command_and_its_options_have_help_and_a_page(name: str) -> None:
    command = kvtally.commands[name]
    assert command.help and command.help.splitlines()[0].endswith(".")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []
    pages = [page for page in DOCS.glob("*.md") if page.name not in ("cli.md", "json.md", "index.md")]
    assert any(f"kvtally {name}" in page.read_text() for page in pages)


def test_every_road_has_tests() -> None:
    tests = DOCS.parent / "tests"
    for road, _, starts in roads.ROADS:
        assert any(list(tests.glob(f"{start}*")) for start in starts), road
        assert f"| {road} |" in roads.PAGE.read_text(), "run: python tests/docs/roads.py on the results of the tests"


def test_a_result_is_counted_on_its_road_once(tmp_path: Path) -> None:
    cases = [("property.test_laws", ""), ("unit.live.test_rounding", "<skipped/>"), ("unit.test_gguf", "<failure/>")]
    rows = "".join(f'<testcase classname="tests.{place}" name="t">{state}</testcase>' for place, state in cases)
    (tmp_path / "results.xml").write_text(f"<testsuites><testsuite>{rows}</testsuite></testsuites>")
    page = roads.page([tmp_path / "results.xml"])
    counted = {
        row.split(" | ")[0].strip("| "): row.split(" | ")[2:] for row in page.splitlines() if row.count("|") == 6
    }
    assert [counted[road] for road in ("laws", "rounded", "traced", "GGUF")] == [
        ["1", "0", "0 |"], ["0", "0", "1 |"], ["not run", "not run", "not run |"], ["0", "1", "0 |"],
    ]  # fmt: skip
