"""`kvtally lab`: start, check, hint, show, reset, report."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kvtally.core.errors import InputError, KvtallyError, require_one_of
from kvtally.frontends.as_json import as_json
from kvtally.frontends.lab import grader, place, show
from kvtally.frontends.lab.grader import Report
from kvtally.frontends.lab.hints import HINTS
from kvtally.frontends.lab.steps import STEPS, Step, seed_from
from kvtally.frontends.options import integer
from kvtally.frontends.output import complain, say, say_help
from kvtally.frontends.render import coloured

INTRODUCTION = """Build a KV cache yourself, step by step, and count what it saves.

\b
Begin:   kvtally lab start my-cache
Then:    cd my-cache, read LESSON.md, edit kv.py
And:     kvtally lab check
"""
POLL = 0.2  # seconds between two looks at the file


@click.group("lab", help=INTRODUCTION, invoke_without_command=True)
@click.pass_context
def lab(context: click.Context) -> None:
    """The lesson; the verbs are commands of their own."""
    if context.invoked_subcommand is None:
        say(context.get_help())


@lab.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
def start(folder: Path) -> None:
    """Write kv.py and LESSON.md into DIR and remember the place."""
    place.start(folder)
    here = folder == Path()
    say(f"{folder / 'kv.py'}: {len(STEPS)} functions to write, one step each")
    say(f"{folder / 'LESSON.md'}: what for\n")
    say(f"next: {'' if here else f'cd {folder}, '}read LESSON.md, then kvtally lab check")


_FILE = click.argument("file", default="kv.py", type=click.Path(path_type=Path))


def _seeded(command: Any) -> Any:
    command = click.option("--seed", metavar="S", help="Inputs of this seed, a whole number [new ones].")(command)
    return click.option("--seed-from", metavar="NAME", help="The seed that belongs to a name.")(command)


@lab.command()
@_FILE
@click.option("--step", metavar="N", help="Only this step, by number or name.")
@click.option("--watch", is_flag=True, help="Check again whenever the file is saved; Ctrl-C ends it.")
@_seeded
@click.option("--strict", is_flag=True, help="Keep every number with the grader, for marks; slower.")
@click.option("--python", metavar="PATH", help="Run FILE with this Python, 3.9 or newer [the one kvtally runs on].")
@click.option("--format", "form", metavar="table|json|junit", default="table", help="How to print it [table].")
def check(
    file: Path, *, step: str | None, watch: bool, strict: bool, python: str | None, form: str, **seeds: str | None
) -> int:
    """Check FILE [kv.py] up to the first unfinished step.

    Exit code 0: all of it passed; 1: not yet.
    """
    require_one_of("--format", form, ("table", "json", "junit"))
    if watch and form != "table":
        raise InputError(f"`--watch` and `--format {form}` are both given, expected the table with --watch")
    steps = STEPS if step is None else (_step(step),)

    def once() -> int:
        report = grader.check(
            place.learner_text(file), file=str(file), seed=_seed(**seeds), steps=steps, strict=strict,
            python=_python(python),
        )  # fmt: skip
        _remember(file, report)
        printers = {"json": _as_json, "junit": show.junit}
        say(printers[form](report) if form in printers else show.table(report, coloured=coloured()))
        return 0 if report.stopped is None else 1

    return _watched(file, once) if watch else once()


@lab.command()
@_FILE
def hint(file: Path) -> None:
    """Give a hint on the step at hand, each time a bit more."""
    here = place.read(file.parent)
    name = here.next
    if not name:
        say("Every step has passed: there is nothing left to hint at.")
        return
    hints, seen = HINTS[name], here.hints.get(name, 0)
    now = min(seen + 1, len(hints))
    say("\n".join(show.wrapped(f"{name}, hint {now} of {len(hints)}: {hints[now - 1]}")))
    place.write(file.parent, place.Place(passed=here.passed, hints={**here.hints, name: now}))


@lab.command("show")
@click.argument("step")
@_FILE
def show_(step: str, file: Path) -> None:
    """Show one way to write a STEP that you have passed."""
    name = _step(step).name
    if name not in place.read(file.parent).passed:
        raise InputError(
            f"step `{name}` has not passed, expected one that has", hint="kvtally lab hint says a little at a time"
        )
    say(place.solution(name))


@lab.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(folder: Path, yes: bool) -> None:
    """Start over in DIR; your kv.py is kept aside."""
    if not yes and not sys.stdin.isatty():
        raise InputError("start over? There is no terminal to ask on", hint="say it with --yes")
    if not yes and not click.confirm(f"Start over in {folder}? Your kv.py is kept under another name."):
        say("nothing was changed")
        return
    kept = place.reset(folder)
    say(f"{folder / 'kv.py'} is new" + (f"; yours is {kept}" if kept else ""))


@lab.command()
@_FILE
@_seeded
@click.option("--format", "form", metavar="md|json", default="md", help="How to print it [md].")
def report(file: Path, form: str, **seeds: str | None) -> int:
    """Print the record to hand in, checked as `lab check --strict` does.

    Figures by step, the table by length, the memory.
    """
    require_one_of("--format", form, ("md", "json"))
    found = grader.check(place.learner_text(file), file=str(file), seed=_seed(**seeds), strict=True)
    _remember(file, found)
    say(_as_json(found) if form == "json" else show.record(found))
    return 0 if found.stopped is None else 1


say_help(lab)


def _python(asked: str | None) -> str:
    if asked is None:
        return sys.executable
    found = shutil.which(asked)
    if found is None:
        raise InputError(f"`--python` is {asked!r}, expected a Python of 3.9 or newer that can be run")
    return found


def _step(asked: str) -> Step:
    """The step that a number or a name means."""
    found = [s for s in STEPS if asked in (s.name, str(s.number))]
    if not found:
        known = ", ".join(f"{s.number} {s.name}" for s in STEPS)
        raise InputError(f"no step `{asked}`", hint=f"known: {known}")
    return found[0]


def _seed(seed: str | None, seed_from: str | None) -> int:
    if seed is not None and seed_from is not None:
        raise InputError("`--seed` and `--seed-from` are both given, expected one of them")
    if seed_from is not None:
        return _of_name(seed_from)
    if seed is None:
        return secrets.randbelow(1_000_000)
    try:
        return integer("seed", seed, least=0, most=10**18)
    except InputError as error:
        raise InputError(error.problem, hint="--seed-from takes a name") from None


def _of_name(name: str) -> int:
    if not name.strip():
        raise InputError("`--seed-from` is empty, expected a name")
    return seed_from(name)


def _remember(file: Path, report: Report) -> None:
    """Note the steps that have passed, in a folder where the lesson was started."""
    if (file.parent / place.STATE).exists():
        here = place.read(file.parent)
        after = here.with_passed([o.name for o in report.passed])
        if after != here:
            place.write(file.parent, after)


def _watched(file: Path, once: Callable[[], int]) -> int:
    """Check, then again at every save, until interrupted."""
    place.learner_text(file)
    seen = None
    while True:
        now = _saved(file)
        if now not in (seen, None):
            say("" if seen is None else f"\n{'-' * show.WIDTH}")
            seen = now
            try:
                once()
            except KvtallyError as error:  # what is saved next may be readable again
                complain(str(error))
            say(f"\nwatching {file}; Ctrl-C ends it")
        time.sleep(POLL)


def _saved(file: Path) -> tuple[int, int] | None:
    """What changes when the file is saved; None while an editor has it moved away."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


def _as_json(report: Report) -> str:
    return as_json("lab", report.to_dict())
