"""The page's numbers are kvtally's: counted in Chromium, in BigInt, and compared cell by cell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from browser.settings import STORIES, address, at_random, comparable, decoder, tallies
from kvtally.frontends.cli import main

pytestmark = pytest.mark.browser

RECORDS = "hashes => hashes.map(hash => json(answerRecord(fromHash(hash).s)))"
DRAWN = """hashes => hashes.map(hash => {
  const { s } = fromHash(hash);
  show(s);
  const { view } = page;
  const last = view.steps.length - 1;
  const sides = ["left", "right"].map((side) => {
    const sums = view.steps.map((step) => tallied(step[side], view.lanes));
    const painted = draw(document.getElementById(side), view, side, last);
    const all = (name) => sums.reduce((a, b) => a + b[name], 0);
    return { computed: all("computed"), read: all("read"), dots: all("dots"), painted: painted[NEW] + painted[AGAIN],
      paintedRead: painted[READ] };
  });
  return { setting: json({ ...view.small, batch: BigInt(view.lanes) }), sides };
})"""


def test_five_hundred_settings_are_counted_alike(visit: Callable[..., Any], explorer: str) -> None:
    dice = Random(9)
    asked = [at_random(dice, most=10**6, batch=9) for _ in range(500)]
    records = visit(explorer).evaluate(RECORDS, [address(setting) for setting in asked])
    beyond = 0
    for setting, text in zip(asked, records, strict=True):
        record = json.loads(text)
        assert {name: str(value).lower() for name, value in setting.items()} == {
            name: str(value).lower() for name, value in record["setting"].items() if name in setting
        }
        for tally, side in zip(tallies(setting), record["sides"], strict=True):
            expected = comparable(json.loads(json.dumps(tally.to_dict())))
            assert comparable(side["tally"]) == expected, address(setting)
            beyond += tally.total > 2**53
        context = sum(int(n) for turn in setting["turns"].split(",") for n in turn.split("+")) - 1
        if setting["story"] != "turns":
            context = setting["prompt"] + setting["new"] - 1
        held = setting["batch"] * decoder(setting).held(context)
        assert record["sides"][1]["cache"]["elements"] == held
        assert record["sides"][1]["cache"]["bytes"] == held * setting["bytes"]
    assert beyond > 100  # else the exact integers were never put to the test


@pytest.mark.parametrize("story", STORIES)
def test_drawn_cells_are_the_counted_states_and_dots_the_comparisons(
    story: str, visit: Callable[..., Any], explorer: str
) -> None:
    dice = Random(story)
    asked = [f"#story={story}"]
    asked += [
        address(at_random(dice, most=most, batch=3) | {"story": story}) for most in (40, 40, 40, 40, 1000, 100000)
    ]
    for drawn in visit(explorer).evaluate(DRAWN, asked):
        setting = json.loads(drawn["setting"])
        mixer = setting["kvHeads"] * setting["headDim"] * setting["layers"]
        last = setting["layers"] - 1
        for tally, side in zip(tallies(setting), drawn["sides"], strict=True):
            assert side["computed"] == side["painted"] == tally.states
            assert side["read"] == side["paintedRead"] == tally.cells().get("k_read", 0) // mixer
            assert side["dots"] == sum(n for (_, layer), n in tally.comparisons.items() if layer == last)


def test_the_command_shown_prints_the_numbers_shown(
    visit: Callable[..., Any], explorer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = Random(20)
    asked = [address(at_random(dice, most=2000, batch=4) | {"story": STORIES[k % len(STORIES)]}) for k in range(20)]
    asked += [f"#story={story}" for story in STORIES]
    asked += [f"#story={story}&model={model}" for story in STORIES for model in ("llama-3.1-8b", "mistral-7b-v0.1")]
    for text in visit(explorer).evaluate(RECORDS, asked):
        record = json.loads(text)
        program, *words = shlex.split(record["command"])
        assert program == "kvtally"
        assert main([*words, "--format", "json"]) == 0, record["command"]
        said = json.loads(capsys.readouterr().out)
        for mine, theirs in zip(record["sides"], said["sides"], strict=True):
            assert comparable(mine["tally"]) == comparable(theirs["tally"]), record["command"]
        assert record["sides"][1]["cache"]["elements"] == said["sides"][1]["cache"]["elements"]
