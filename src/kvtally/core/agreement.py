"""How alike two runs are, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from kvtally.core.errors import KvtallyError, require_one_of

GROUPS = ("power", "steps", "static", "padding", "edit", "batch", "reuse", "window", "generate")
VERDICTS = ("DEFECT", "LOSSY", "not comparable", "blind", "TIE", "rounding", "same", "unsupported")  # worst first
DEFECTS = ("DEFECT", "LOSSY")  # the cache is wrong
PASSED = ("same", "rounding", "TIE")
PRECISIONS = ("float64", "float32", "bfloat16", "float16")
LONGEST_RUN = 1_000_000  # tokens of a text that a model is run on, twice and more
THRESHOLD = 1e-6  # of the logits' scale, in true float64: rounding stays below 5e-8, real defects start at 4e-5


class CacheDefectError(KvtallyError):
    """The cache is wrong, or the check could not tell: exit code 1."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The two runs at one position: the largest difference of a logit, the best token of each, and how far the
    best logit of the left run stands above its second."""

    position: int
    max_abs: float
    token_left: int
    token_right: int
    margin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How alike the cached run of one scenario is to the pass without a cache.

    `error` is max |a - b| / max |logits| in `precision`, `scale` is max |logits|, `floor` the same error
    measured between runs that need no cache (rounding of this model in its own precision), `native` the
    error in the model's own precision, `threshold` the share of `scale` from which on a position counts as
    different. `rule` says in words what decided. `where` names the first
    differing cell, `note` what else there is to say. What is not in it: the logits themselves.

    >>> a = Agreement(scenario="chunks of 3", group="steps", verdict="rounding", error=2e-15, precision="float64")
    >>> print(a.text)
    steps: chunks of 3: rounding, error 2e-15 in float64
    """

    scenario: str
    group: str
    verdict: str
    error: float = 0.0
    scale: float = 0.0
    floor: float = 0.0
    native: float | None = None
    threshold: float = THRESHOLD
    precision: str = ""
    rule: str = ""
    steps: tuple[Step, ...] = ()
    where: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        require_one_of("verdict", self.verdict, VERDICTS)
        require_one_of("group", self.group, GROUPS)

    @property
    def first(self) -> Step | None:
        """The first position that differs by more than `threshold` of the scale; None where none does."""
        return next((s for s in self.steps if not s.max_abs <= self.threshold * self.scale), None)

    @property
    def ran(self) -> bool:
        """Whether there was anything to compare."""
        return self.verdict != "unsupported" and not (self.verdict == "not comparable" and not self.precision)

    @property
    def figure(self) -> str:
        """The error in two digits; nothing where none was measured."""
        return f"{self.error:.1e}" if self.precision else ""

    @property
    def text(self) -> str:
        """One sentence: scenario, verdict, error, first position, where, note."""
        said = f"{self.group}: {self.scenario}: {self.verdict}"
        if self.precision and self.verdict not in ("same", "unsupported"):
            said += f", error {self.error:.2g} in {self.precision}"
        if self.first is not None and self.verdict in DEFECTS:
            said += f", first at position {self.first.position}"
        return said + "".join(f"; {more}" for more in (self.where, self.note) if more)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        first = self.first
        return {**asdict(self), "steps": [asdict(s) for s in self.steps], "first": first and first.position}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `check` found of one model: an Agreement for each scenario, and the conventions it rests on.

    >>> a = Agreement(scenario="prefill, then steps", group="steps", verdict="same")
    >>> report = Report(name="gpt2", agreements=(a,))
    >>> report.verdict, report.good
    ('same', True)
    """

    name: str
    agreements: tuple[Agreement, ...]
    conventions: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst verdict of all scenarios; where none of those that were to use a cache ran, `unsupported` at best.

        Power asked for alone is an answer of its own: whether the check can see, in all of its scenarios.
        """
        found = {a.verdict for a in self.agreements}
        used = [a for a in self.agreements if a.group != "power"]
        if "unsupported" in found and not any(a.verdict != "unsupported" for a in used):
            found -= set(PASSED)
        return next((v for v in VERDICTS if v in found), "unsupported")

    @property
    def defects(self) -> tuple[Agreement, ...]:
        """The scenarios in which the cache is wrong."""
        return tuple(a for a in self.agreements if a.verdict in DEFECTS)

    @property
    def good(self) -> bool:
        """Whether at least one scenario ran, and none was wrong, blind or not comparable."""
        return self.verdict in PASSED

    def by_group(self) -> dict[str, str]:
        """The worst verdict of each group that has a scenario."""
        found = {g: {a.verdict for a in self.agreements if a.group == g} for g in GROUPS}
        return {g: next(v for v in VERDICTS if v in seen) for g, seen in found.items() if seen}

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, with the defects one a line below it."""
        ran = sum(a.ran for a in self.agreements)
        head = f"{self.name}: {self.verdict}: {ran} scenarios ran, {len(self.defects)} defects"
        told = self.defects or tuple(a for a in self.agreements if a.verdict in ("not comparable", "blind") and a.note)
        return "\n".join([head, *(f"  {a.text}" for a in told)])

    def raise_if_defect(self) -> None:
        """Nothing where the cache is right; otherwise an error whose text is `sentence`."""
        if not self.good:
            raise CacheDefectError(self.sentence, hint=f"kvtally check {self.name} shows every scenario")

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it, every convention a field."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "good": self.good,
            "groups": self.by_group(),
            "conventions": dict(self.conventions),
            "agreements": [a.to_dict() for a in self.agreements],
        }

    def __str__(self) -> str:
        rows = [("group", "scenario", "verdict", "error", "precision")]
        rows += [(a.group, a.scenario, a.verdict, a.figure, a.precision) for a in self.agreements]
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        lines = ["  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        told = [f"{a.group}: {a.scenario}: {more}" for a in self.agreements for more in (a.where, a.note) if more]
        return "\n".join([*lines, *([""] if told else []), *told, "", self.sentence])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("group", "scenario", "verdict", "error", "rule", "where, note"))
        body = "".join(
            "<tr>"
            + "".join(
                f"<td>{escape(cell)}</td>"
                for cell in (
                    *(a.group, a.scenario, a.verdict, a.figure, a.rule),
                    "; ".join(filter(None, (a.where, a.note))),
                )
            )
            + "</tr>"
            for a in self.agreements
        )
        title = escape(self.sentence.splitlines()[0])
        return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
