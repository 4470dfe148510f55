"""Which verdict the runs of a scenario amount to, and the rule that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvtally.core.agreement import GROUPS, THRESHOLD, Agreement
from kvtally.live.adapter import Adapter
from kvtally.live.measure import Measured
from kvtally.live.scenarios import Scenario
from kvtally.live.scenarios_padding import FULL, FULL_DEFAULT
from kvtally.live.scenarios_power import ALONE, EARLY, LATE, PREFIX, REPEATED
from kvtally.live.where import ALL_RIGHT

FLOORS = 20  # times the measured noise floor: the pre-screen
SCREEN = 5e-6, 2e-5  # at least and at most, in float32: defects start at 4e-5; 16 bits cannot be screened at all
LOSSY = 2e-5  # left in float64 without lifted casts where a cache stores less
EXACT_TIE = 1e-9  # gap of a top-k choice, of the size of its scores
SENSITIVE = 1e-4  # what an early token must move late logits by, of their scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All runs of a question: in its own precision, in true float64, and further ones that tell kinds apart."""

    precision: str
    floor: float
    limit: float
    tolerance: float
    native: Mapping[str, Measured]
    high: Mapping[str, Measured] = field(default_factory=dict)
    plain: Mapping[str, Measured] = field(default_factory=dict)
    nudged: Mapping[str, Measured] = field(default_factory=dict)
    margin: float = 1.0


def screen(adapter: Adapter, precision: str, floor: float, tolerance: float, factor: float | None) -> float:
    """The error up to which the model's own precision decides that it is rounding; `factor` is one that was asked for.

    Without a model to run in float64 there is nothing but this. Where less than the usual threshold is tolerated,
    float32 cannot be a screen either.
    """
    if adapter.model is None and precision == "float64":
        return tolerance
    if factor is not None:
        return factor * floor
    least, most = SCREEN
    if adapter.model is None:
        return max(FLOORS * floor, least if precision == "float32" else 0.0)
    return min(max(FLOORS * floor, least), most) if precision == "float32" and tolerance >= THRESHOLD else 0.0


def loud(given: Evidence) -> float:
    """The error above which rounding of the model's own precision alone is no explanation."""
    return max(FLOORS * given.floor, LOSSY)


def settled(scenario: Scenario, given: Evidence) -> bool:
    """Whether the first run decides: it was refused, its bits are equal, or it is within the pre-screen."""
    found = given.native[scenario.name]
    if scenario is EARLY:
        return bool(found.refused) or found.error > max(FLOORS * given.floor, SENSITIVE)
    done = bool(found.refused and not found.steps) or found.crashed
    return done or found.equal or found.error <= given.limit


def agreement(scenario: Scenario, given: Evidence) -> Agreement:
    """What one scenario is, and which rule says so."""
    first = given.native[scenario.name]
    found, precision = first, given.precision
    if scenario.name in given.high and not _unanswered(scenario, given):
        found, precision = given.high[scenario.name], "float64"
    base = Agreement(
        scenario=scenario.name,
        group=scenario.group,
        verdict="unsupported",
        error=found.error,
        scale=found.scale,
        floor=given.floor,
        native=first.error,
        threshold=given.tolerance,
        precision=precision if found.steps else "",
        steps=tuple(found.steps),
        note=found.refused,
    )
    if scenario is EARLY:
        return _sensitive(base, found)
    if found.crashed:
        place = "" if found.where == ALL_RIGHT else found.where
        rule = "the cached path crashes where a call without a cache runs"
        return replace(base, verdict="DEFECT", rule=rule, where=place)
    if found.refused and (not found.steps or found.error <= given.tolerance):
        return replace(base, rule="the model or its cache refuses")
    verdict, rule = _verdict(scenario, found, given)
    if verdict == "LOSSY":  # float64 shows nothing of it: the error in the model's own precision does
        base = replace(base, error=first.error, scale=first.scale, steps=tuple(first.steps))
        base = replace(base, precision=given.precision, threshold=loud(given))
    place = {"DEFECT": found, "LOSSY": given.plain.get(scenario.name, found)}.get(verdict, Measured()).where
    margin = f"the smallest gap of a top-k choice is {given.margin:.1g} of the scores" if verdict == "TIE" else ""
    why = NOTES.get(scenario, "") if verdict == "not comparable" else found.noted if verdict == "DEFECT" else ""
    said = "; ".join(filter(None, (base.note, margin, why)))
    return replace(base, verdict=verdict, rule=rule, where=place, note=said)


def _unanswered(scenario: Scenario, given: Evidence) -> bool:
    """Whether a scenario that ran in the model's own precision does not in float64."""
    return bool(given.high[scenario.name].refused) and not given.native[scenario.name].refused


def _verdict(scenario: Scenario, found: Measured, given: Evidence) -> tuple[str, str]:
    """The verdict and its rule, of a scenario that ran."""
    if found.equal:
        return "same", "all bits are equal"
    if scenario.name not in given.high:
        return _native(scenario, found, given, given.limit, "no float64 to run again in")
    if _unanswered(scenario, given):
        limit = max(given.limit, FLOORS * given.floor)
        return _native(scenario, found, given, limit, f"float64 does not run: {given.high[scenario.name].refused}")
    if found.error > given.tolerance:
        tied = given.nudged.get(scenario.name)
        if tied is not None and tied.error <= given.tolerance:
            return "TIE", f"at most {given.tolerance:g} in true float64 once exact ties of a top-k choice are broken"
        return _wrong(scenario), f"above {given.tolerance:g} in true float64"
    return _small(given.plain.get(scenario.name), given.tolerance)


def _native(scenario: Scenario, found: Measured, given: Evidence, limit: float, why: str) -> tuple[str, str]:
    """The verdict where the model's own precision has to decide."""
    if found.error <= limit:
        return "rounding", f"within the pre-screen, {limit:.1g}, in {given.precision}"
    return _wrong(scenario), f"above {limit:.1g} in {given.precision}, and {why}"


def _small(plain: Measured | None, tolerance: float) -> tuple[str, str]:
    """What a difference is that true float64 takes away: the cache's doing where it stores less, at some place."""
    if plain is not None and plain.error > LOSSY and plain.where:
        return "LOSSY", f"above {LOSSY:g} in float64 until casts to lower float types are lifted"
    return "rounding", f"at most {tolerance:g} in true float64"


NOTES = {
    REPEATED: "the uncached pass is not deterministic",
    LATE: "the uncached pass is not causal: this model cannot be cached",
    PREFIX: "the uncached pass depends on how many tokens are in the call: the reference is wrong, not the cache",
    ALONE: "without a cache already, rows of a batch differ from rows alone",
}


def _wrong(scenario: Scenario) -> str:
    """What too large a difference means."""
    return "not comparable" if scenario in NOTES else "DEFECT"


def _sensitive(base: Agreement, found: Measured) -> Agreement:
    """Whether the check could have seen a fault at all."""
    moved = f"late logits move by {found.error:.2g} of their scale"
    if found.refused and not found.steps:
        return replace(base, verdict="blind", rule="nothing can be changed", precision="")
    if found.error > SENSITIVE:
        return replace(base, verdict="same", rule=moved, steps=(), precision="", error=0.0)
    note = "the check could not see a fault: weights too small, or tokens that do not matter"
    return replace(base, verdict="blind", rule=f"{moved}, expected more than {SENSITIVE:g}", steps=(), note=note)


def barred(power: Mapping[str, Agreement]) -> dict[str, str]:
    """Groups that nothing can be said about, and the precondition that fails."""
    failed = [s for s in NOTES if power[s.name].verdict == "not comparable"]
    return {g: s.name for s in reversed(failed) for g in (("batch", "padding") if s is ALONE else GROUPS)}


def barred_agreement(scenario: Scenario, barred: Mapping[str, str]) -> Agreement:
    why = f"the precondition `{barred[scenario.group]}` fails"
    return Agreement(scenario=scenario.name, group=scenario.group, verdict="not comparable", rule=why)


def explained(told: Sequence[Agreement]) -> list[Agreement]:
    """What a padded pass without a cache says of the padded ones with one."""
    by_name = {a.scenario: a for a in told if a.group == "padding"}
    full = by_name.get(FULL)
    both = full is not None and full.verdict == "DEFECT"
    return [_of_padding(a, both) if a.group == "padding" and a.verdict == "DEFECT" else a for a in told]


def _of_padding(a: Agreement, both: bool) -> Agreement:
    """A defect under padding; `both` says that the padded pass without a cache is wrong as well."""
    if a.scenario == FULL_DEFAULT:
        note = "without position ids a padded prompt is another one than alone; give them"
        return replace(a, verdict="unsupported", note=note, where="")
    note = "the padded pass without a cache differs from each prompt alone: the mask is not honoured there"
    return replace(a, note=note) if both else a
