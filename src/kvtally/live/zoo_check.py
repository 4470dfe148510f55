"""One tiny real model of every architecture, its cache checked in every scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kvtally.core.agreement import DEFECTS, Report
from kvtally.live.adapter import of_transformers
from kvtally.live.check import check
from kvtally.live.harness import build
from kvtally.live.zoo import scaled, version
from kvtally.live.zoo_row import GOOD, UNASKED, Outcome, bad
from kvtally.live.zoo_shrink import shrunk


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One architecture of the zoo: the worst verdict of each scenario group, and what was said of the bad ones.

    `found` has a sentence for each scenario that is a defect, blind or not comparable.

    >>> CheckRow(name="llama", groups={"steps": "rounding", "edit": "DEFECT"}).wrong
    True
    """

    name: str
    model: str = ""
    built: Outcome = UNASKED
    ran: Outcome = UNASKED
    groups: Mapping[str, str] = field(default_factory=dict)
    found: tuple[str, ...] = ()
    transformers: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the cache is wrong in some scenario, or the check itself did not run on a built model."""
        return self.ran.ok is False or any(verdict in DEFECTS for verdict in self.groups.values())

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return asdict(self) | {"groups": dict(self.groups), "found": list(self.found)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CheckRow:
        """The row that `to_dict` wrote."""
        asked = {name: Outcome(**fields[name]) for name in ("built", "ran")}
        return cls(**{**fields, **asked, "found": tuple(fields["found"])})


def visit_check(name: str) -> CheckRow:
    """The row of one architecture, made in this process: a tiny model is built, and every scenario run on it."""
    row = CheckRow(name=name, transformers=version())
    try:
        model = scaled(build(shrunk(name), device="cpu"))
    except Exception as error:
        return replace(row, built=bad(error.__cause__ or error))
    row = replace(row, model=type(model).__name__, built=GOOD)
    try:
        return checked(row, check(of_transformers(model)))
    except Exception as error:
        return replace(row, ran=bad(error))


def checked(row: CheckRow, report: Report) -> CheckRow:
    """The row with what the report says."""
    told = tuple(a.text for a in report.agreements if a.verdict in (*DEFECTS, "blind", "not comparable"))
    return replace(row, ran=GOOD, groups=report.by_group(), found=told)
