"""The real run of `round` is shown twice, in README and on its page: the same figures, in the table of today."""

from __future__ import annotations

import re
from pathlib import Path

from kvtally.frontends.round_text import KEPT, OUTLIERS, OUTPUT, TITLE

ROOT = Path(__file__).parents[2]


def shown(page: str) -> list[str]:
    """The lines of the block that begins with the title of `round`."""
    found = re.search(rf"^```text\n({re.escape(TITLE)}\n.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    assert found is not None, page
    return found[1].splitlines()


def test_the_readme_shows_figures_of_the_page() -> None:
    readme, page = shown("README.md"), shown("docs/round.md")
    assert set(readme) <= set(page)
    assert len(readme) <= 30 and all(len(line) <= 80 for line in page)


def test_the_tables_have_the_heads_of_today() -> None:
    page = shown("docs/round.md")
    for heads in (OUTPUT, KEPT, OUTLIERS):
        assert [line for line in page if line.split() == " ".join(heads).split()], heads
