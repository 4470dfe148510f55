"""Reports in a real browser: inert, within the window, and good for everyone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser.test_explore import HOSTILE
from kvtally.frontends.cli import main
from kvtally.frontends.report import Bars, Group, Report, write

pytestmark = pytest.mark.browser

COMMANDS = [
    "count", "count llama-3.1-8b --prompt 2048 --new 512", "count --lengths 10,100", "count gpt2 --edit-at 100",
    "count gpt2 --turns 512+128,64+128", "count gpt2 --chunk 128 --by layer", "count gpt2 --against executed --new 4",
    "round llama --kv-cache-dtype bf16,int4 --tokens 36", "size gpt2 --roofline --facts",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_opens_and_axe_finds_nothing(
    command: str, visit: Callable[..., Any], axe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("round"):
        pytest.importorskip("transformers", reason="round runs a real model and needs transformers")
    path = tmp_path / "report.html"
    assert main([*command.split(), "--html", str(path)]) == 0
    for width, scheme in ((1240, "light"), (360, "dark")):
        page = visit(path.as_uri(), width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("pre code").inner_text() == f"kvtally {command} --html {path}"
        page.evaluate(axe)
        found = page.evaluate("() => axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
        assert found == []


def test_a_report_of_hostile_strings_is_only_text(visit: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    bars = Bars(names=(HOSTILE, HOSTILE), rows=[(HOSTILE, 3, 1)])
    group = Group(title=HOSTILE, rows=[(HOSTILE, HOSTILE, HOSTILE)])
    write(
        Report(
            title=HOSTILE, about=[HOSTILE], command=[HOSTILE, "after"], bars=bars, heads=(HOSTILE, HOSTILE),
            groups=[group], notes=[HOSTILE],
        ),
        path,
    )  # fmt: skip
    page = visit(path.as_uri(), width=360)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.querySelectorAll('img, script').length") == 0
    assert page.evaluate("document.querySelectorAll('[onerror]').length") == 0
    assert page.locator("h1").inner_text().startswith(HOSTILE[:20])


def test_a_hostile_model_name_reaches_a_report_as_text(
    visit: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "<script>alert(1)<" / "\u202e'\"&"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 2}))
    path = tmp_path / "report.html"
    assert main(["count", str(folder), "--new", "4", "--html", str(path)]) == 0
    page = visit(path.as_uri())
    assert page.evaluate("document.querySelectorAll('script').length") == 0
    assert "<script>alert(1)<" in page.locator("header").inner_text()
