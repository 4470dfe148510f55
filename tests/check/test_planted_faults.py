"""Every planted fault is a DEFECT in the right group, its place named; the healthy models have none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from check import faults_attention, faults_calls, faults_more, faults_recurrent, faults_stored  # noqa: E402
from check.planted import Fault, planted  # noqa: E402
from kvtally.core.agreement import Agreement  # noqa: E402
from kvtally.live.check import check  # noqa: E402
from kvtally.live.harness import build  # noqa: E402
from kvtally.live.zoo import scaled  # noqa: E402
from kvtally.live.zoo_shrink import shrunk  # noqa: E402

FAULTS = (
    *faults_attention.FAULTS,
    *faults_calls.FAULTS,
    *faults_more.FAULTS,
    *faults_recurrent.FAULTS,
    *faults_stored.FAULTS,
)
MODELS = sorted({fault.model for fault in FAULTS})
KINDS = {
    *("positions", "masks", "storage", "crop", "batch", "windows", "static", "state on the module", "sharing"),
    *("recurrent", "latent", "experts", "uncached", "generate", "reuse"),
}
TOKENS = 14  # past two windows of the tiny models

# Real ones of transformers 5.24, no false alarms: `crop` returns although the cache says `is_croppable` is False,
# and generate feeds the whole text again to a cache that cannot say how much of it it holds.
STATIC_CROP = frozenset({"static crop", "edit in the middle, static"})
RECORDED = frozenset(
    f"{edit}, past recorded"
    for edit in ("crop below a window", "crop beyond a window", "crop after steps", "edit in the middle")
)
CARRIED = "generate on a carried cache"
WINDOWED = ("gemma2", "gemma3_text", "gemma3n_text", "gpt_oss", "llama4", "mistral")
ROWS = frozenset({"select rows", "select one row", "repeat rows"})  # of keys and values, not of the states beside them
REAL = {**dict.fromkeys(WINDOWED, STATIC_CROP), "mamba2": RECORDED | {CARRIED}, "falcon_h1": RECORDED | ROWS}


@pytest.fixture(scope="module")
def table(request: Any) -> Iterator[list[str]]:
    """Lines that are printed when all faults have been tried."""
    lines: list[str] = []
    yield lines
    head = f"{'kind':20}{'fault':52}{'model':14}{'group':10}error  where"
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        sys.stdout.write("\n".join(["", head, *sorted(lines), ""]))


def model(name: str) -> Any:
    """A new one each time: some faults leave their traces on it."""
    return scaled(build(shrunk(name), device="cpu"))


def test_enough_faults_of_every_kind() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert {fault.kind for fault in FAULTS} == KINDS


@pytest.mark.parametrize("name", MODELS)
def test_a_healthy_model_has_no_defect(name: str) -> None:
    groups = {group for fault in FAULTS if fault.model == name for group in fault.groups}
    report = check(model(name), scenarios=groups | {"steps"}, tokens=TOKENS)
    assert {a.scenario for a in report.defects} <= REAL.get(name, frozenset()), str(report)
    assert not {a.verdict for a in report.agreements} & {"blind", "not comparable"}, str(report)
    assert report.by_group()["steps"] in ("rounding", "same")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, table: list[str]) -> None:
    with planted(fault):
        report = check(model(fault.model), scenarios=fault.groups, tokens=TOKENS)
    found = [
        a
        for a in report.agreements
        if a.verdict in fault.verdicts and a.group in fault.groups and a.scenario not in REAL.get(fault.model, ())
    ]
    assert found, str(report)
    worst = max(found, key=lambda a: a.error)
    told = next((a.where for a in found if a.where), "")
    table.append(
        f"{fault.kind:20}{fault.name:52}{fault.model:14}{worst.group:10}{_figure(worst)}  {told[:110]}".rstrip()
    )
    assert any(all(word in a.where for word in fault.where) for a in found), [a.text for a in found]
    assert not report.good


def _figure(found: Agreement) -> str:
    """The error that decided; of a lossy cache the one in the model's own precision."""
    return f"{found.native if found.verdict == 'LOSSY' else found.error:.0e}"


def test_transformers_is_as_it_was() -> None:
    for fault in FAULTS:
        before = [vars(owner).get(name) for owner, name, _ in fault.patches]
        with planted(fault):
            inside = [vars(owner).get(name) for owner, name, _ in fault.patches]
        assert [vars(owner).get(name) for owner, name, _ in fault.patches] == before
        assert all(a is not b for a, b in zip(before, inside, strict=True))
