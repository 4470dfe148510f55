"""How long the page takes to open, and to draw a frame of 100 x 100 cells in both panels, in Chromium."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import write
from playwright.sync_api import sync_playwright

from kvtally.frontends.explore.write import html

RUNS = 15
OPENED = "performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint')?.startTime"
FRAMES = """() => {  // a pixel is read back, so that what was drawn has really been drawn
  const flush = (side) => document.getElementById(side).getContext("2d").getImageData(0, 0, 1, 1);
  return view_steps().map((k) => {
    const start = performance.now();
    go(k);
    flush("left");
    flush("right");
    return performance.now() - start;
  });
  function view_steps() { return page.view.steps.map((_, k) => k); }
}"""


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium on this machine: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "explore.html"
        path.write_text(html(), encoding="utf-8")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        opened, frames = [], []
        for _ in range(RUNS):
            page = browser.new_page(viewport={"width": 1240, "height": 900})
            page.goto(path.as_uri())
            while (shown := page.evaluate(OPENED)) is None:
                page.wait_for_timeout(5)
            opened.append(shown)
            frames += page.evaluate(FRAMES)
            page.close()
        version = browser.version
        browser.close()
        length = path.stat().st_size
    median = statistics.median
    rows = [
        ("the page opens, first paint", f"{median(opened):.0f} ms", f"slowest of {RUNS}: {max(opened):.0f} ms"),
        ("a frame of both panels", f"{median(frames):.1f} ms", f"slowest of {len(frames):,}: {max(frames):.1f} ms"),
        ("the file", f"{length:,} bytes", "one file, nothing fetched"),
    ]
    write("explore", rows, f"Chromium {version}; no other page to compare with")
    print(*(" | ".join(row) for row in rows), sep="\n")


if __name__ == "__main__":
    main()
