"""The pytest plugin: the fixture `kv_check`, which fails a test with the sentence that `kvtally check` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvtally.core.agreement import Report

MARKER = "kv_check"
OPTIONS = {  # of the marker and of the call, and with `kv_` before it of the ini file
    "scenarios": "scenarios to run, separated by commas, or `all`",
    "dtype": "the native precision to screen in, such as `bfloat16`",
    "tokens": "tokens of the longest prompt",
    "seed": "of the random token ids",
    "tolerance": "share of the largest logit above which true float64 says DEFECT",
    "screen": "times the noise without a cache up to which nothing is run again",
}
NUMBERS: dict[str, Callable[[str], float]] = {"tokens": int, "seed": int, "tolerance": float, "screen": float}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Ini options; nothing is imported for them."""
    for name, told in OPTIONS.items():
        parser.addini(f"kv_{name}", f"kvtally: {told}", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """The marker, so that --strict-markers knows it."""
    config.addinivalue_line("markers", f"{MARKER}({', '.join(OPTIONS)}): kvtally: how the fixture `kv_check` checks")


@pytest.fixture
def kv_check(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """A function `kv_check(model, ids=None, **options) -> Report` that fails the test where the cache is wrong.

    `model` is what `kvtally.live.check` takes: a transformers model, or an Adapter of your own. Options
    of the call come before those of the marker `kv_check`, those before the ini file's.
    """
    asked = _from_ini(request.config) | _from_marker(request.node)

    def checked(model: Any, ids: Any = None, **options: Any) -> Report:
        from kvtally.core.errors import KvtallyError
        from kvtally.live.check import check

        try:
            report = check(model, ids, **asked | options)
            report.raise_if_defect()
        except KvtallyError as error:
            said = str(error)
        else:
            return report
        pytest.fail(said, pytrace=False)

    return checked


def _from_ini(config: pytest.Config) -> dict[str, Any]:
    """What the ini file says, numbers read."""
    said = {name: config.getini(f"kv_{name}") for name in OPTIONS}
    return {name: _read(name, text) for name, text in said.items() if text}


def _read(name: str, text: str) -> Any:
    try:
        return NUMBERS.get(name, str)(text)
    except ValueError:
        raise pytest.UsageError(f"kv_{name}: `{text}`, expected a number: {OPTIONS[name]}") from None


def _from_marker(node: Any) -> dict[str, Any]:
    """What the nearest marker says, by keyword only."""
    marker = node.get_closest_marker(MARKER)
    if marker is None:
        return {}
    unknown = [*map(repr, marker.args), *(f"`{name}`" for name in marker.kwargs if name not in OPTIONS)]
    if unknown:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER}: found {', '.join(unknown)}; known, by keyword: "
            + ", ".join(f"`{name}`" for name in OPTIONS)
        )
    return dict(marker.kwargs)
