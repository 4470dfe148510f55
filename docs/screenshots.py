"""Pictures of three stories for the docs, in light and dark: taken of the page itself, in Chromium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from kvtally.frontends.explore.write import html

IMAGES = Path(__file__).parent / "images"
STORIES = ("generate", "edit", "window")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium on this machine: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "explore.html"
        path.write_text(html(), encoding="utf-8")
        browser = play.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1240, "height": 900}, color_scheme=scheme)
            for story in STORIES:
                page.goto("about:blank")
                page.goto(f"{path.as_uri()}#story={story}")
                page.locator(".stage").screenshot(path=IMAGES / f"explore-{story}-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
