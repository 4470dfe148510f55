"""The page of `replay` in a real browser: pictures with their tables, within the window, good for everyone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from browser.test_explore import HOSTILE
from kvtally.frontends.cli import main

pytestmark = pytest.mark.browser


def written(folder: Path, *prompts: list[int]) -> str:
    made = folder / "t.jsonl"
    made.write_text("".join(
        json.dumps({"timestamp": 90_000 * n, "input_length": 16 * len(ids), "hash_ids": ids, "block_size": 16,
                    "session_id": HOSTILE if n % 2 else "a"}) + "\n"
        for n, ids in enumerate(prompts)
    ))  # fmt: skip
    return str(made)


AGAIN = [[0, 1, 2], [0, 1, 2, 3], [0, 4], [0, 1, 2, 3, 5]]


@pytest.mark.parametrize(("prompts", "words"), [(AGAIN, "--model llama-3.1-8b"), (AGAIN, ""), ([[0], [1]], "")])
def test_the_page_opens_and_axe_finds_nothing(
    prompts: list[list[int]], words: str, visit: Callable[..., Any], axe: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "report.html"
    assert main(["replay", written(tmp_path, *prompts), *words.split(), "--by", "session", "--html", str(path)]) == 0
    for width, scheme in ((1240, "light"), (360, "dark")):
        page = visit(path.as_uri(), width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("svg.plot").count() == 2
        assert page.evaluate("document.querySelectorAll('img, script').length") == 0
        for summary in page.locator("summary").all():
            summary.click()
        page.evaluate(axe)
        found = page.evaluate("() => axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
        assert found == []


def test_the_curve_says_what_its_table_says(
    visit: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.html"
    assert main(["replay", written(tmp_path, *AGAIN), "--model", "llama-3.1-8b", "--html", str(path)]) == 0
    page = visit(path.as_uri())
    page.locator("summary").first.click()
    rows = [row.split("\t") for row in page.locator("details").first.inner_text().split("\n")[1:] if "\t" in row]
    # 14 blocks asked for, 8 hit: 0, 1, 2 again; then 0; then 0, 1, 2, 3, for which 5 blocks are enough
    assert rows[0] == ["blocks", "memory", "blocks hit", "multiplications saved"]
    assert rows[-1][:3] == ["5", "10.0 MiB", "57.1 %"]
    top = page.evaluate("document.querySelector('path.first').getPointAtLength(1e9).y")
    assert abs(top - (34 + 232 * (1 - 8 / 14))) < 0.2  # the picture's own tenths of a pixel
