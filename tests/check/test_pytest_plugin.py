"""The pytest plugin: what it says, how it is told, and that it costs nothing until it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


from check.numpy_decoder import NumpyDecoder
from check.own_models import in_numpy
from kvtally.live.check import check as run_check  # imported here, torch stays between the inner runs

pytest_plugins = ["pytester"]

ASKED = """
from check.numpy_decoder import NumpyDecoder
from check.own_models import in_numpy

def test_cache(kv_check):
    kv_check(in_numpy(NumpyDecoder(restarts={restarts})), scenarios="steps")
"""
HEALTHY, SICK = ASKED.format(restarts=False), ASKED.format(restarts=True)


def test_a_healthy_cache_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEALTHY)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_wrong_cache_fails_with_the_sentence_of_the_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SICK)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    report = run_check(in_numpy(NumpyDecoder(restarts=True)), scenarios="steps")
    shown = [line.strip() for line in result.outlines]
    for line in report.sentence.splitlines():
        assert line.strip() in shown
    assert not any(word in line for line in shown for word in ("Traceback", "raise ", "another exception"))


def test_the_marker_says_how_and_the_call_says_more(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from check.numpy_decoder import NumpyDecoder
        from check.own_models import in_numpy

        @pytest.mark.kv_check(scenarios="steps", seed=3)
        def test_marked(kv_check):
            report = kv_check(in_numpy(NumpyDecoder()))
            assert set(report.by_group()) == {"power", "steps"}
            assert report.conventions["seed"] == 3

        @pytest.mark.kv_check(scenarios="steps")
        def test_called(kv_check):
            report = kv_check(in_numpy(NumpyDecoder()), scenarios="edit")
            assert set(report.by_group()) == {"power", "edit"}
    """)
    pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=2)


def test_the_ini_file_comes_last(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkv_scenarios = edit\nkv_tokens = 11\n")
    pytester.makepyfile("""
        import pytest
        from check.numpy_decoder import NumpyDecoder
        from check.own_models import in_numpy

        def test_ini(kv_check):
            report = kv_check(in_numpy(NumpyDecoder()))
            assert set(report.by_group()) == {"power", "edit"}
            assert report.conventions["tokens"] == 11

        @pytest.mark.kv_check(scenarios="steps")
        def test_marker_first(kv_check):
            assert set(kv_check(in_numpy(NumpyDecoder())).by_group()) == {"power", "steps"}
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_tolerances_are_taken_from_the_ini_file_and_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkv_scenarios = steps\nkv_tolerance = 1e-3\n")
    pytester.makepyfile("""
        import pytest
        from check.numpy_decoder import NumpyDecoder
        from check.own_models import in_numpy

        def said(report):
            return report.conventions["threshold"].partition(" ")[0]

        def test_ini(kv_check):
            assert said(kv_check(in_numpy(NumpyDecoder()))) == "0.001"

        @pytest.mark.kv_check(tolerance=1e-9, screen=0)
        def test_marker(kv_check):
            assert said(kv_check(in_numpy(NumpyDecoder()))) == "1e-09"
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("ini", "marker", "said"),
    [
        ("kv_tokens = many", "", "kv_tokens: `many`, expected a number: tokens of the longest prompt"),
        ("kv_tolerance = much", "", "kv_tolerance: `much`, expected a number: share of the largest logit"),
        ("kv_tolerance = 2", "", "`tolerance` is 2, expected a number above 0 and below 1"),
        ("", "@pytest.mark.kv_check(screen=-1)", "`screen` is -1, expected a number of at least 0"),
        ("", '@pytest.mark.kv_check(scenario="steps")', "found `scenario`; known, by keyword: `scenarios`, `dtype`"),
        ("", '@pytest.mark.kv_check("steps")', "found 'steps'; known, by keyword: `scenarios`"),
        ("", '@pytest.mark.kv_check(scenarios="stairs")', "stairs"),
    ],
)
def test_a_wrong_option_is_named(pytester: pytest.Pytester, ini: str, marker: str, said: str) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile(
        "import pytest\n" + HEALTHY.replace(', scenarios="steps"', "").replace("def test", f"{marker}\ndef test")
    )
    result = pytester.runpytest_inprocess()
    assert result.ret != 0
    assert any(said in line for line in result.outlines + result.errlines)


def test_without_the_plugin_there_is_no_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_cache(kv_check):\n    kv_check(None)")
    result = pytester.runpytest_subprocess("-p", "no:kvtally")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'kv_check' not found*"])


def test_it_imports_nothing_but_pytest_until_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import json, pathlib, sys
        def test_other():
            pathlib.Path("seen.json").write_text(json.dumps(sorted(sys.modules)))
    """)
    run = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=pytester.path, capture_output=True, check=False)
    assert run.returncode == 0, run.stdout
    seen = set(json.loads((pytester.path / "seen.json").read_text()))
    assert "kvtally.frontends.pytest_plugin" in seen
    assert not seen & {"torch", "transformers", "numpy", "click", "rich", "kvtally.live", "kvtally.core.agreement"}
