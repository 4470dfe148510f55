"""A report as text: a table for a terminal of 80 columns, JSON, JUnit, and the record to hand in."""

from __future__ import annotations

import textwrap
from xml.sax.saxutils import quoteattr

from kvtally.frontends.lab.grader import FAILED, PASSED, UNWRITTEN, WAITING, Outcome, Report
from kvtally.frontends.lab.steps import STEPS
from kvtally.frontends.markdown import markdown_table

WIDTH = 78
GREEN, RED, BOLD = "32", "31", "1"
FORMULAS = {step.name: step.formula for step in STEPS}


def table(report: Report, *, coloured: bool = False) -> str:
    """What the learner reads: figures of the steps done, then the one to do, and why it is not passed."""
    lines = [_head(report), report.isolation, "", _row("", "step", "your counter", "seen", "formula", "")]
    shown = [o for o in report.outcomes if o.state in (PASSED, FAILED) or o is report.stopped]
    lines += [_painted(_figures(o), o.state, coloured) for o in shown]
    lines += _pictures(report)
    if report.printed:
        lines += ["", "your file printed:", *(f"  | {line}" for line in report.printed.splitlines())]
    return "\n".join([*lines, "", *_ending(report)])


def _head(report: Report) -> str:
    strict = ", strict: every number stays with the grader" if report.strict else ""
    return f"{report.file}, seed {report.seed}{strict}"


def _row(number: str, name: str, *columns: str) -> str:
    counter, seen, formula, state = columns
    return f"{number:>3}  {name:<20}{counter:>13}{seen:>12}{formula:>12}  {state}".rstrip()


def _figures(o: Outcome) -> str:
    numbers = ["" if n is None else f"{n:,}" for n in (o.counter, o.seen, o.formula)]
    return _row(str(o.number), o.name, *numbers, "to write" if o.state == UNWRITTEN else o.state)


def _painted(line: str, state: str, coloured: bool) -> str:
    colour = {PASSED: GREEN, FAILED: RED}.get(state)
    if not coloured or colour is None:
        return line
    head, _, word = line.rpartition("  ")
    return f"{head}  \x1b[{colour}m{word}\x1b[0m"


def _pictures(report: Report) -> list[str]:
    """The triangles: both loops side by side once both have passed, else the one at hand."""
    drawn = {o.name: o.triangle for o in report.outcomes if o.triangle}
    loops = [drawn[n] for n in ("run_without_cache", "run_with_cache") if n in drawn]
    if not loops or (len(report.passed) > 7 and report.stopped is not None):
        return []
    widths = [max(map(len, picture)) + 4 for picture in loops]
    height = max(map(len, loops))
    rows = [
        "".join((picture[i] if i < len(picture) else "").ljust(w) for picture, w in zip(loops, widths, strict=True))
        for i in range(height)
    ]
    names = [n for n in ("run_without_cache", "run_with_cache") if n in drawn]
    title = "".join(f"  {n}".ljust(w) for n, w in zip(names, widths, strict=True))
    return ["", "How many of q, k and v were made, by step and token:", *(r.rstrip() for r in (title, *rows))]


def _ending(report: Report) -> list[str]:
    """Remarks of the newest steps, then what to do next."""
    remarks = [f"{o.name}: {o.remark}." for o in report.passed if o.remark]
    lines = [line for text in remarks for line in wrapped(text)]
    lines += [""] if lines else []
    stopped = report.stopped
    if stopped is None:
        return [*lines, *_done(report)]
    failed = [o for o in report.outcomes if o.state == FAILED] if stopped.bonus else [stopped]
    lines += [line for o in failed for line in (*_unfinished(o, report.seed), "")]
    return [*lines, f"next: edit {report.file}, then check again; stuck? kvtally lab hint"]


def _unfinished(o: Outcome, seed: int) -> list[str]:
    """Why a step is not passed, and the call that shows it."""
    which = f"Bonus step {o.number}" if o.bonus else f"Step {o.number} of {sum(not step.bonus for step in STEPS)}"
    lines = wrapped(f"{which}, {o.name}: {o.message}.")
    if o.state == UNWRITTEN:
        shows = FORMULAS[o.name]
        return [*lines, f"  must show: {shows} multiplication{'' if shows == '1' else 's'}"] if shows else lines
    call = [part for line in o.call.splitlines() for part in wrapped(line, "    ", "      ")]
    return [*lines, *wrapped(_asked(o, seed), "  "), *call]


def _asked(o: Outcome, seed: int) -> str:
    """The seed, the sizes where the inputs below do not say them already, and the formula."""
    told = all(part in o.call for part in o.sizes.split(", ")) or o.sizes in o.message
    sizes = "" if told else f"{o.sizes}, "
    formula = f"; the formula is {FORMULAS[o.name]}" if FORMULAS[o.name] and o.formula else ""
    return f"with {sizes}seed {seed}{formula}:"


def _done(report: Report) -> list[str]:
    lesson = [o for o in report.outcomes if not o.bonus]
    bonus = [o for o in report.outcomes if o.bonus]
    open_ones = [f"{o.number} {o.name}" for o in bonus if o.state != PASSED]
    if len(report.outcomes) < len(STEPS):
        return [f"Passed: {', '.join(o.name for o in report.passed)}."]
    lines = [f"All {len(lesson)} steps of the lesson are done. Well counted!"]
    if open_ones:
        lines += wrapped(f"Bonus, if you like: {', '.join(open_ones)}.")
    else:
        lines += ["The bonus steps are done as well. There is nothing left to teach you here."]
    return [*lines, "", "next: kvtally lab report writes the record to hand in"]


def wrapped(text: str, first: str = "", rest: str = "  ") -> list[str]:
    """The text in lines that fit 80 columns."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def junit(report: Report) -> str:
    """The report as JUnit XML: a step is a test case, a step not reached is skipped."""
    failures = sum(o.state == FAILED or o is report.stopped for o in report.outcomes)
    skipped = len(report.outcomes) - failures - len(report.passed)
    totals = f'tests="{len(report.outcomes)}" failures="{failures}" errors="0" skipped="{skipped}" time="0"'
    facts = {"file": report.file, "seed": report.seed, "isolation": report.isolation, "strict": report.strict}
    return "\n".join([
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites name="kvtally lab" {totals}>',
        f'<testsuite name="kvtally lab" {totals}>',
        "<properties>",
        *(f"<property name={quoteattr(name)} value={quoteattr(str(value))}/>" for name, value in facts.items()),
        "</properties>",
        *(_testcase(o, o is report.stopped) for o in report.outcomes),
        "</testsuite>",
        "</testsuites>",
    ])  # fmt: skip


def _testcase(o: Outcome, stopped: bool) -> str:
    body = ""
    if o.state == FAILED or stopped:
        body = f"<failure type={quoteattr(o.state)} message={quoteattr(o.message)}/>"
    elif o.state in (UNWRITTEN, WAITING):
        body = f"<skipped message={quoteattr(o.state)}/>"
    return f'<testcase classname="kv" name="{o.number:02}_{o.name}" time="0">{body}</testcase>'


def record(report: Report) -> str:
    """The record to hand in, as Markdown: figures by step, the table by length, the memory."""
    head = (
        f"{_share(report, bonus=False)} steps and {_share(report, bonus=True)} bonus steps passed, seed {report.seed}."
    )
    level = report.isolation[0].upper() + report.isolation[1:]
    lines = ["# A KV cache, counted", "", f"{head} {level}.", ""]
    cells = [
        (str(o.number), o.name, *("" if n is None else f"{n:,}" for n in (o.counter, o.seen, o.formula)), o.state)
        for o in report.outcomes
    ]
    lines.append(markdown_table(("step", "function", "own counter", "seen by the grader", "formula", "result"), cells))
    if report.table:
        lines += ["", "## Multiplications by length, d = 64", ""]
        rows = [(f"{n:,}", f"{a:,}", f"{b:,}", f"{a / b:.1f}") for n, a, b in report.table]
        lines.append(markdown_table(("tokens", "without cache", "with cache", "ratio"), rows))
    if report.memory:
        elements, size = report.memory
        lines += ["", "## Memory", "", f"100 tokens, 1 layer, 1 K and V head, 64 wide, 2 bytes each: "
                  f"{elements:,} elements, {size:,} bytes ({size / 1024:.1f} KiB)."]  # fmt: skip
    remarks = [f"- {o.name}: {o.remark}" for o in report.passed if o.remark]
    return "\n".join([*lines, *(["", "## Seen on the way", "", *remarks] if remarks else [])])


def _share(report: Report, *, bonus: bool) -> str:
    return f"{sum(o.bonus is bonus for o in report.passed)} of {sum(o.bonus is bonus for o in report.outcomes)}"
