"""`kvtally check --zoo`: the cache of a tiny real model of every architecture, in every scenario group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from kvtally.core.agreement import DEFECTS, GROUPS, VERDICTS
from kvtally.core.errors import require_one_of
from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.options import integer
from kvtally.frontends.output import complain
from kvtally.frontends.zoo import (
    ENGINES,
    FORMATS,
    MOST_JOBS,
    chosen,
    deliver,
    escaped,
    rows_kept,
    rows_read,
    swept,
)

if TYPE_CHECKING:
    from kvtally.live.zoo_check import CheckRow

SECONDS = 300.0  # an architecture may take
UNRUN, UNASKED = "did not run", "nothing"  # of an architecture, of a scenario group


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A verdict that another run had otherwise: `before` or `after` is "" where that run had no such architecture."""

    name: str
    group: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """One line.

        >>> Change(name="llama", group="edit", before="DEFECT", after="rounding").text
        'llama: edit: DEFECT -> rounding'
        """
        if self.before and self.after:
            return f"{self.name}: {self.group}: {self.before} -> {self.after}"
        return f"{self.name}: {'gone' if self.before else 'new'}: {self.before or self.after}"


def check_zoo(
    *,
    only: str | None = None,
    jobs: str = "1",
    engine: str = "local",
    results: str | None = None,
    against: str | None = None,
    form: str = "table",
    out: str | None = None,
) -> int:
    """Checks every architecture, or those that `only` names, and writes one table; 1 where a cache is wrong.

    Each row is kept in the file `results` as it is done, and a run that was stopped goes on from there. What
    differs from the rows of an earlier file, `against`, is named, whichever transformers those are of.
    """
    require_one_of("--format", form, FORMATS)
    require_one_of("--engine", engine, ENGINES)
    at_once = integer("jobs", jobs, least=1, most=MOST_JOBS)
    from kvtally.live import zoo as live
    from kvtally.live.zoo_check import CheckRow, visit_check
    from kvtally.live.zoo_ray import sweep_on_ray
    from kvtally.live.zoo_sweep import Limits, sweep

    names = chosen(only, live.names())
    earlier = [] if against is None else rows_read(against, CheckRow)
    earlier = [row for row in earlier if only is None or row.name in names]
    before = {} if results is None else rows_kept(results, live.version(), CheckRow)
    limits = Limits(seconds=SECONDS, work=visit_check, row=CheckRow)
    visit = partial(sweep_on_ray if engine == "ray" else sweep, jobs=at_once, limits=limits)
    rows, stopped = swept(names, before, visit, results=results, told=_progress)
    told = None if against is None else changes(earlier, rows, whole=not stopped)
    deliver(as_text(rows, form, live.version(), told), out)
    if stopped:
        raise KeyboardInterrupt
    return 1 if any(row.wrong for row in rows) else 0


def _progress(row: CheckRow, done: int, whole: int) -> None:
    complain(f"{done}/{whole} {row.name}: {_said(row)}"[:200])


def _said(row: CheckRow) -> str:
    """How a row came out, in a few words."""
    failed = next((o.note for o in (row.built, row.ran) if o.ok is False), "")
    return failed or ("; ".join(row.found) if row.found else "good")


def changes(before: Iterable[CheckRow], after: Iterable[CheckRow], *, whole: bool = True) -> list[Change]:
    """What differs between two runs, group by group, by name; nothing is gone from a run that is not `whole`."""
    old, new = ({row.name: _verdicts(row) for row in rows} for rows in (before, after))
    found = []
    for name in sorted(old.keys() | new.keys() if whole else new):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            found.append(Change(name=name, group="all", before=_worst(was), after=_worst(now)))
        else:
            groups = [(g, was.get(g, UNASKED), now.get(g, UNASKED)) for g in GROUPS]
            found += [Change(name=name, group=g, before=a, after=b) for g, a, b in groups if a != b]
    return found


def _verdicts(row: CheckRow) -> Mapping[str, str]:
    return row.groups if row.ran.ok else dict.fromkeys(GROUPS, UNRUN)


def _worst(verdicts: Mapping[str, str] | None) -> str:
    return next((v for v in (UNRUN, *VERDICTS) if v in (verdicts or {}).values()), "")


def as_text(rows: Sequence[CheckRow], form: str, version: str, told: Sequence[Change] | None = None) -> str:
    """The rows, and what changed, as a table for a terminal, JSON, or a page of Markdown."""
    if form == "json":
        record = {"transformers": version, "rows": [row.to_dict() for row in rows]}
        return as_json("check", record | ({} if told is None else {"changes": [*map(asdict, told)]}))
    if form == "md":
        return _markdown(rows, version, told)
    lines = [("architecture", *GROUPS), *((row.name, *(row.groups.get(g, "") for g in GROUPS)) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    table = ["  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    bad = [f"{row.name}: {_said(row)}" for row in rows if _said(row) != "good"]
    changed = [] if told is None else ["", f"{len(told)} verdicts changed", *(change.text for change in told)]
    return "\n".join([*table, "", *bad, *([""] if bad else []), *summary(rows), *changed])


def summary(rows: Iterable[CheckRow]) -> list[str]:
    """What all rows say together, a sentence each."""
    rows = list(rows)
    ran = [row for row in rows if row.ran.ok]
    wrong = [row for row in ran if row.wrong]
    apart = [row for row in ran if "not comparable" in row.groups.values()]
    defects = sum(verdict in DEFECTS for row in ran for verdict in row.groups.values())
    return [
        f"{len(ran)} of {len(rows)} architectures were built and checked",
        f"{len(wrong)} of them have a defect, in {defects} scenario groups together",
        f"{len(apart)} cannot be compared: without any cache they are not causal, or not the same twice",
    ]


ABOUT = """One tiny model with random weights of every causal-LM architecture of transformers {version}, its cache
compared with a pass without one in every scenario, by `kvtally check --zoo --format md --out docs/zoo_check.md`,
which wrote this page. A cell is the worst verdict of its group; [check.md](check.md) says what the words mean. A DEFECT
here is what was measured; each cause has a page under `docs/found/`, with a reproduction and the cells it explains."""


def _markdown(rows: Sequence[CheckRow], version: str, changed: Sequence[Change] | None) -> str:
    head = ("architecture", *GROUPS)
    body = [(f"`{row.name}`", *(row.groups.get(g, "") for g in GROUPS)) for row in rows if row.groups]
    told = [f"- `{row.name}`: {escaped(text)}" for row in rows for text in row.found] or ["Nothing."]
    unrun = [f"- `{row.name}`: {escaped(_said(row))}" for row in rows if not row.ran.ok] or ["Nothing."]
    parts = [
        "# The zoo, checked",
        ABOUT.format(version=version),
        "\n".join(f"- {line}" for line in summary(rows)),
        markdown_table(head, body),
        "## What was found",
        "\n".join(told),
        "## What did not run",
        "\n".join(unrun),
    ]
    if changed is not None:
        lines = [f"- {escaped(change.text)}" for change in changed] or ["Nothing."]
        parts += ["## What changed", "\n".join(lines)]
    return "\n\n".join(parts)
