"""The page in a real browser: every story opens, plays, scrubs; nothing is fetched; everyone can use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from browser.settings import STORIES
from kvtally.frontends.explore.write import page as written
from kvtally.frontends.sizes import Sizes

pytestmark = pytest.mark.browser

Visit = Callable[..., Any]
HOSTILE = (
    "<script>alert(1)</script>\"'</option></script><img src=x onerror=alert(1)>\u202e\u05d0\u05d1 `$(id)` "
    + "w" * 10_000
)
BIG = "&model=llama-3.1-405b&prompt=1000000&new=100000"


def until(page: Any, true: str) -> None:
    """Waits for an expression; the page's own policy forbids Playwright's way of doing so."""
    for _ in range(400):
        if page.evaluate(true):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {true}")


def text(page: Any, name: str) -> str:
    return str(page.locator(f"#{name}").inner_text())


@pytest.mark.parametrize("story", STORIES)
def test_a_story_opens_plays_and_scrubs(story: str, visit: Visit, explorer: str) -> None:
    page = visit(explorer)
    page.locator(f"#stories button[value={story}]").click()
    steps = int(page.locator("#step").get_attribute("max"))
    assert text(page, "sentence").startswith(f"Step {steps} of {steps}")
    end = text(page, "right-states")
    page.locator("#first").click()
    assert text(page, "sentence").startswith(f"Step 1 of {steps}")
    page.locator("#next").click()
    assert f"step={2}" in page.url
    page.locator("#step").fill(str(steps - 1))
    assert text(page, "sentence").startswith(f"Step {steps - 1} of {steps}")
    page.locator("#play").click()
    until(page, f"currentStep() === {steps - 1} && page.timer === null")
    assert text(page, "right-states") == end
    assert text(page, "play") == "Play"


def test_the_lesson_reads_as_it_is_taught(visit: Visit, explorer: str) -> None:
    page = visit(explorer)
    assert (text(page, "left-states"), text(page, "right-states")) == ("5,050", "100")
    assert text(page, "left-dots") == text(page, "right-dots") == "100 comparisons in this step, 5,050 so far"
    rows = [row.split("\t") for row in text(page, "numbers").splitlines()]
    assert ["total", "62,700,800", "1,875,200", "33.4×"] in rows


def test_an_address_holds_the_whole_state(visit: Visit, explorer: str) -> None:
    page = visit(explorer)
    page.locator("#stories button[value=edit]").click()
    page.locator("[name=prompt]").fill("20")
    page.locator("[name=at]").fill("5")
    page.locator("[name=heads]").fill("4")
    page.locator("#step").fill("3")
    again = visit(page.url)
    for name in ("sentence", "numbers", "command", "left-states"):
        assert text(again, name) == text(page, name)
    assert "--edit-at 5" in text(again, "command") and "--heads 4" in text(again, "command")


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("new", "many", "new tokens is “many”: expected a whole number"),
        ("new", "0", "new tokens is 0: expected 1 to 1,000,000,000,000"),
        ("kvHeads", "2", "heads is 1 and KV heads is 2: expected a whole number of heads for each KV head"),
    ],
)
def test_a_wrong_knob_is_named_and_changes_nothing(
    name: str, typed: str, said: str, visit: Visit, explorer: str
) -> None:
    page = visit(explorer)
    before = text(page, "numbers")
    page.locator(f"[name={name}]").fill(typed)
    assert text(page, "problem") == said
    assert page.locator(f"[name={name}]").get_attribute("aria-invalid") == "true"
    assert text(page, "numbers") == before
    page.locator(f"[name={name}]").fill("1")
    assert text(page, "problem") == ""


def test_a_wrong_address_opens_the_lesson(visit: Visit, explorer: str) -> None:
    for wrong in ("#story=%3Cscript%3E&new=-1", "#new=99999999999999", "#heads=3&kvHeads=2", "#story=turns&turns=a"):
        assert text(visit(explorer + wrong), "problem") == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1240, 360])
def test_axe_finds_nothing(scheme: str, width: int, visit: Visit, explorer: str, axe: str) -> None:
    page = visit(explorer, width=width, scheme=scheme)
    page.evaluate(axe)
    for story in STORIES if width == 1240 else STORIES[:2]:
        page.locator(f"#stories button[value={story}]").click()
        found = page.evaluate("() => axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
        assert found == [], story


@pytest.mark.parametrize("width", [1240, 768, 360])
def test_nothing_is_wider_than_the_window(width: int, visit: Visit, explorer: str) -> None:
    page = visit(explorer, width=width)
    page.locator("#exact").check()
    for story in STORIES:
        for more in ("", BIG, f"{BIG}&batch=3"):
            page.evaluate("hash => show(fromHash(hash).s)", f"#story={story}{more}")
            assert page.evaluate("document.documentElement.scrollWidth") == width, (story, more)


def test_the_keyboard_alone_reaches_everything(visit: Visit, explorer: str) -> None:
    page = visit(explorer)
    wanted = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea, [tabindex]')]"
        ".filter(e => e.checkVisibility()).map((e, i) => (e.dataset.n = i))"
    )
    reached = set()
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        n, outline = page.evaluate(
            "[document.activeElement.dataset.n, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if n is not None:
            reached.add(int(n))
            assert outline != "none", n
    assert reached == set(wanted)
    page.locator("#step").focus()
    page.keyboard.press("ArrowLeft")
    assert text(page, "sentence").startswith("Step 99 of 100")
    page.locator("#stories button[value=turns]").focus()
    page.keyboard.press("Enter")
    assert text(page, "story-title") == "A conversation"
    page.locator("#play").focus()
    page.keyboard.press("Space")
    assert text(page, "play") == "Pause"


def test_reduced_motion_plays_no_faster_than_two_steps_a_second(visit: Visit, explorer: str) -> None:
    page = visit(explorer, reduced_motion="reduce")
    page.evaluate("window.waits = []; window.setTimeout = (f, ms) => { waits.push(ms); return 1; }")
    page.locator("#play").click()
    assert page.evaluate("waits.filter(ms => ms)") == [500]


def test_numbers_command_and_link_are_copied(visit: Visit, explorer: str) -> None:
    page = visit(explorer, permissions=["clipboard-read", "clipboard-write"])
    for button, part in (("copy-json", '"states": 5050'), ("copy-command", "kvtally count"), ("copy-link", "#story=")):
        page.locator(f"#{button}").click()
        until(page, "document.getElementById('copied').textContent.includes('copied')")
        assert part in page.evaluate("navigator.clipboard.readText()")


def test_a_hostile_model_name_is_only_text(visit: Visit, tmp_path: Any) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(written({HOSTILE: Sizes(layers=2)}, HOSTILE), encoding="utf-8")
    for width in (1240, 360):
        page = visit(path.as_uri(), width=width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("document.querySelectorAll('img, script').length") == 2  # the page's own two scripts
        assert "'\\''" in text(page, "command") and HOSTILE[:25] in text(page, "command")
        assert page.locator("#command").bounding_box()["height"] < 300


def test_it_prints_in_ink_on_paper(visit: Visit, explorer: str) -> None:
    page = visit(explorer, scheme="dark")
    painted = "requestAnimationFrame(() => requestAnimationFrame(() => { window.told = true; }))"
    page.evaluate(f"matchMedia('print').addEventListener('change', () => {painted})")  # after the page's own
    page.emulate_media(media="print", color_scheme="dark")
    until(page, "window.told && inks().paper === '#fff'")
    corner = "[...document.getElementById('right').getContext('2d').getImageData(400, 40, 1, 1).data].slice(0, 3)"
    assert page.evaluate(corner) == [255, 255, 255]
    assert not page.locator("#play").is_visible()
