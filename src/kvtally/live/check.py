"""Cache on against cache off, scenario by scenario."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from kvtally.core.agreement import GROUPS, LONGEST_RUN, PRECISIONS, THRESHOLD, Agreement, Report
from kvtally.core.errors import InputError, require_int, require_number, require_one_of
from kvtally.core.passes import LONGEST
from kvtally.live import (
    scenarios_batch,
    scenarios_edit,
    scenarios_generate,
    scenarios_padding,
    scenarios_power,
    scenarios_steps,
)
from kvtally.live.adapter import Adapter, Unsupported, of_transformers, taken
from kvtally.live.float64 import Choices, converted, float64
from kvtally.live.harness import as_found
from kvtally.live.measure import Measured, measure, not_finite
from kvtally.live.raised import Crashed, guarded
from kvtally.live.scenarios import Bench, Scenario
from kvtally.live.scenarios_power import ALONE, EARLY, FILLED, PREFIX, REPEATED
from kvtally.live.third_opinion import third_opinion
from kvtally.live.verdict import (
    EXACT_TIE,
    LOSSY,
    NOTES,
    Evidence,
    agreement,
    barred,
    barred_agreement,
    explained,
    loud,
    screen,
    settled,
)
from kvtally.live.where import stored_lower, where

SCENARIOS: tuple[Scenario, ...] = (
    *scenarios_power.SCENARIOS,
    *scenarios_steps.SCENARIOS,
    *scenarios_padding.SCENARIOS,
    *scenarios_edit.SCENARIOS,
    *scenarios_batch.SCENARIOS,
    *scenarios_generate.SCENARIOS,
)
TOKENS, FEWEST = 24, 8
PASSED_WINDOW = 64  # windows up to this many tokens are passed without being asked for
LOCATED = 2  # defects of each group whose first wrong cell is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is checked: a decoder, on which tokens, in which scenarios."""

    adapter: Adapter
    tokens: int
    seed: int
    ids: Any
    scenarios: tuple[Scenario, ...]
    tolerance: float = THRESHOLD
    factor: float | None = None

    def bench(self) -> Bench:
        """A new bench: passes of one precision are of no use in another."""
        return Bench(adapter=self.adapter, tokens=self.tokens, seed=self.seed, ids=self.ids)


def check(
    model: Any,
    ids: Any = None,
    *,
    scenarios: str | Iterable[str] = "all",
    dtype: str | None = None,
    tokens: int | None = None,
    seed: int = 0,
    tolerance: float = THRESHOLD,
    screen: float | None = None,
) -> Report:
    """Whether the cache of `model` is right: one Agreement a scenario, errors as shares of the largest logit.

    `model` is a transformers model or an `Adapter`. Teacher-forced on `ids` (1, n), or on `tokens` random ones; logits
    are compared, never tokens. `scenarios` are names of groups or of single scenarios, `dtype` the precision it is
    run in first (None: its own). That is a pre-screen against 20 times the rounding measured on this model
    without a cache; what exceeds it runs again in true float64, where more than `tolerance` of the scale is a DEFECT.
    16 bits cannot decide, so there everything that is not equal runs again. `screen` is another factor than 20, taken
    as it is given in every precision; 0 runs everything again. The model is left as it was found.

    >>> from kvtally.live.harness import build
    >>> llama = dict(model_type="llama", hidden_size=8, num_attention_heads=2, num_hidden_layers=1,
    ...              intermediate_size=12, vocab_size=19)
    >>> check(build(llama, device="cpu"), scenarios="steps", tokens=9).by_group()["steps"]
    'rounding'
    """
    if dtype is not None:
        require_one_of("dtype", dtype, PRECISIONS)
    tolerance = require_number("tolerance", tolerance, above=0, below=1)
    factor = None if screen is None else require_number("screen", screen, least=0)
    adapter = guarded(model if isinstance(model, Adapter) else of_transformers(model))
    question = _question(adapter, ids, scenarios, tokens, require_int("seed", seed, least=0, most=LONGEST))
    question = replace(question, tolerance=tolerance, factor=factor)
    with _as_found(adapter.model) if adapter.model is not None else torch.no_grad():
        with _native(adapter, dtype):
            name, native, stopped = _first(question)
        if stopped is not None:
            return _report(question, (stopped,), name, 0.0)
        return _decided(question, native, name)


@contextmanager
def _as_found(model: Any) -> Iterator[None]:
    """`as_found`, and attributes that calls leave on modules (generate keeps its static cache there) are taken off."""
    before = {module: set(vars(module)) for module in model.modules()}
    with as_found(model):
        try:
            yield
        finally:
            for module, names in before.items():
                for name in vars(module).keys() - names:
                    del vars(module)[name]


def _question(adapter: Adapter, ids: Any, scenarios: str | Iterable[str], tokens: int | None, seed: int) -> Question:
    wanted = chosen(scenarios)
    if ids is not None:
        ids = taken(adapter, ids, least=FEWEST)
        if tokens is not None and tokens != ids.shape[1]:
            raise InputError(f"`tokens` is {tokens:,} and `ids` has {ids.shape[1]:,}, expected one of them")
        tokens = ids.shape[1]
    small = [w for w in adapter.windows if w <= PASSED_WINDOW]
    usual = max([TOKENS, *(2 * w + 4 for w in small)])
    tokens = usual if tokens is None else require_int("tokens", tokens, least=FEWEST, most=LONGEST_RUN)
    return Question(adapter=adapter, tokens=tokens, seed=seed, ids=ids, scenarios=wanted)


def chosen(scenarios: str | Iterable[str]) -> tuple[Scenario, ...]:
    """The scenarios that are named, by group or by name; those of `power` always, as the others rest on them."""
    known = {s.name for s in SCENARIOS}
    names = _split(scenarios, known) if isinstance(scenarios, str) else list(scenarios)
    for name in names:
        if name not in ("all", *GROUPS, *known):
            raise InputError(
                f"`scenarios` has {name!r}; known: `all`, " + ", ".join(f"`{g}`" for g in GROUPS),
                hint="or the name of a single scenario, as a report prints it",
            )
    return tuple(s for s in SCENARIOS if s.group == "power" or "all" in names or {s.name, s.group} & set(names))


def _split(text: str, known: Collection[str]) -> list[str]:
    """Names that commas separate; some have commas of their own.

    >>> _split("edit, prefill, then steps", ["prefill, then steps"])
    ['edit', 'prefill, then steps']
    """
    parts, names = [part.strip() for part in text.split(",")], []
    while parts:
        taken = next((k for k in range(len(parts), 1, -1) if ", ".join(parts[:k]) in known), 1)
        names.append(", ".join(parts[:taken]))
        del parts[:taken]
    return names


@contextmanager
def _native(adapter: Adapter, dtype: str | None) -> Iterator[None]:
    """The model in the precision that was asked for."""
    if dtype is None:
        yield
    elif adapter.model is None:
        raise InputError(f"`dtype` is {dtype!r} and the adapter has no torch `model`, expected None")
    else:
        with float64(adapter.model) if dtype == "float64" else converted(adapter.model, getattr(torch, dtype)):
            yield


def _first(question: Question) -> tuple[str, dict[str, Measured], Agreement | None]:
    """The name of the precision and all scenarios measured in it; or why nothing can be compared."""
    bench = question.bench()
    try:
        logits = bench.full(bench.prompt())
    except Unsupported as refusal:
        raise InputError(
            f"{question.adapter.name} does not run a plain pass over token ids: {refusal}",
            hint="expected a decoder with logits; an encoder has no cache to check",
        ) from refusal
    model = question.adapter.model
    held = logits.dtype if model is None else next((p.dtype for p in model.parameters()), logits.dtype)
    name = str(held).removeprefix("torch.")
    if said := not_finite(bench):
        stopped = Agreement(scenario=REPEATED.name, group="power", verdict="not comparable", precision=name, note=said)
        return name, {}, stopped
    native = _all(bench, question.scenarios)
    if lossy := _stores_less(bench, held):
        native[STORED] = Measured(where=lossy)
    return name, native, None


STORED = "what the cache stores"


def _stores_less(bench: Bench, dtype: Any) -> str:
    """The first cell of a filled cache whose float type is smaller than that of the model, in words."""
    if bench.adapter.cells is None:
        return ""
    try:
        cache = bench.adapter.fresh()
        bench.extend(cache, bench.prompt()[:, :2])
        found = [(i, p, t) for i, p, t in bench.adapter.cells(cache) if t.dtype.itemsize < dtype.itemsize]
    except (Unsupported, Crashed):  # what a model without a cache says is told by every scenario
        return ""
    return f"layer {found[0][0]}: {found[0][1]} are stored as {found[0][2].dtype}, given as {dtype}" if found else ""


def _all(bench: Bench, scenarios: Iterable[Scenario]) -> dict[str, Measured]:
    return {s.name: measure(bench, s) for s in scenarios}


def _located(question: Question, scenarios: Iterable[Scenario], found: Mapping[str, Measured]) -> None:
    """Says where of the first wrong scenarios of each group."""
    bench, told = question.bench(), dict.fromkeys(GROUPS, 0)
    for s in scenarios:
        if told[s.group] < LOCATED:
            found[s.name].where = _where(bench, s)
            told[s.group] += bool(found[s.name].where)


def _where(bench: Bench, scenario: Scenario) -> str:
    """The first wrong cell of a cache while the scenario runs once more."""
    return where(replace(bench.adapter, croppable=None), lambda watched: scenario.run(replace(bench, adapter=watched)))


def _decided(question: Question, native: Mapping[str, Measured], precision: str) -> Report:
    """Runs again in float64 what the pre-screen lets through, the preconditions first, and says what each is."""
    floor = max(native[s.name].error for s in (REPEATED, PREFIX, ALONE))
    limit = screen(question.adapter, precision, floor, question.tolerance, question.factor)
    given = Evidence(precision=precision, floor=floor, limit=limit, tolerance=question.tolerance, native=native)
    before = [s for s in question.scenarios if s in scenarios_power.SCENARIOS and s is not FILLED]
    after = [s for s in question.scenarios if s not in before]
    first = _again(question, before, given)
    preconditions = [agreement(s, first) for s in before]
    shut = barred({a.scenario: a for a in preconditions})
    left = [s for s in after if s.group not in shut]
    second = _again(question, left, given)
    told = [barred_agreement(s, shut) if s.group in shut else agreement(s, second) for s in after]
    if STORED in native:
        told.append(_stored(native[STORED], precision))
    return _report(question, (*preconditions, *explained(told)), precision, floor)


def _again(question: Question, scenarios: Sequence[Scenario], given: Evidence) -> Evidence:
    """The evidence on these scenarios: in float64 those that the pre-screen does not settle, and what follows."""
    model = question.adapter.model
    open_ = [s for s in scenarios if not settled(s, given)]
    if model is None:
        _located(question, [s for s in open_ if s is not EARLY and s not in NOTES], given.native)
    crashed = [s for s in scenarios if given.native[s.name].crashed]
    if model is None or not (open_ or crashed):
        return given
    choices = Choices()
    with float64(model, choices=choices):
        high = _all(question.bench(), open_)
        _located(question, crashed, given.native)
        above = [s for s in open_ if not high[s.name].error <= question.tolerance and s is not EARLY]
        _located(question, [s for s in above if s not in NOTES], high)
        if FILLED in above:
            high[FILLED.name].where = third_opinion(question.bench(), question.tolerance) or high[FILLED.name].where
    tied = above if choices.margin <= EXACT_TIE else []
    lossy = [s for s in open_ if s not in above and s is not EARLY and given.native[s.name].error > loud(given)]
    plain = _beside(question, lossy, float64(model, lift=False))
    if any(run.error > LOSSY for run in plain.values()):
        with float64(model, lift=False):
            stored = stored_lower(question.adapter, question.bench().prompt(), given.precision)
        for run in plain.values():
            run.where = stored
    nudged = _beside(question, tied, float64(model, choices=Choices(nudged=True)))
    return replace(given, high=high, plain=plain, nudged=nudged, margin=choices.margin)


def _beside(question: Question, scenarios: Sequence[Scenario], how: Any) -> dict[str, Measured]:
    with how if scenarios else nullcontext():
        return _all(question.bench(), scenarios)


def _stored(found: Measured, precision: str) -> Agreement:
    return Agreement(
        scenario=STORED, group="power", verdict="LOSSY", precision=precision, rule="types compared", where=found.where
    )


def _report(question: Question, agreements: tuple[Agreement, ...], precision: str, floor: float) -> Report:
    conventions: dict[str, str | int] = {
        "tokens": question.tokens,
        "seed": question.seed,
        "precision": precision,
        "floor": f"{floor:.1g}",
        "threshold": f"{question.tolerance:g} of the logits' scale, in true float64",
        "torch": str(torch.__version__),
    }
    return Report(name=question.adapter.name, agreements=agreements, conventions=conventions)
