"""`kvtally zoo`: a tiny real model of every architecture, counted and compared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvtally.core.errors import InputError, UnreadableError, require_one_of
from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.options import filled, integer, refuse
from kvtally.frontends.output import complain, naming, say, writable, write_whole

if TYPE_CHECKING:
    from kvtally.live.zoo_row import Row

FORMATS = ("table", "json", "md")
ENGINES = ("local", "ray")
MOST_JOBS = 256
BEGIN = '{"name": "'  # of every row that is kept
DEFAULTS = {"jobs": "1", "engine": "local", "form": "table"}
SWEPT = ("only", "jobs", "engine", "results", "form", "out")  # options of a sweep


@click.command()
@click.option("--only", metavar="A,B,…", help="These architectures, by model_type [every one].")
@click.option("-n", "jobs", metavar="JOBS", help="Architectures at a time [1].")
@click.option("--engine", metavar="local|ray", help="Processes here, or a Ray cluster [local].")
@click.option("--new", is_flag=True, help="Run nothing: name the architectures that kvtally does not read.")
@click.option("--results", metavar="FILE", help="Keep each row here as it is done, and go on from those that are.")
@click.option("--format", "form", metavar="table|json|md", help="How to print it [table].")
@click.option("--out", metavar="FILE", callback=writable, help="Write it there instead of to stdout.")
def zoo(**given: Any) -> int:
    """Build a tiny real model of every architecture of the installed transformers; count it, and compare.

    Each in a process of its own. 0: what kvtally says of those it reads is so. 1: some of it is not.
    """
    if given["new"]:
        refuse(given, SWEPT, "with `--new`")
        return _new()
    given = filled(given, DEFAULTS)
    require_one_of("--format", given["form"], FORMATS)
    require_one_of("--engine", given["engine"], ENGINES)
    at_once = integer("jobs", given["jobs"], least=1, most=MOST_JOBS)
    from kvtally.live import zoo as live
    from kvtally.live.zoo_ray import sweep_on_ray
    from kvtally.live.zoo_row import Row
    from kvtally.live.zoo_sweep import sweep

    visit = partial(sweep_on_ray if given["engine"] == "ray" else sweep, jobs=at_once)
    names, results = chosen(given["only"], live.names()), given["results"]
    kept = {} if results is None else rows_kept(results, live.version(), Row)
    rows, stopped = swept(names, kept, visit, results=results, told=_progress)
    deliver(_text(rows, given["form"], live.version()), given["out"])
    if stopped:
        raise KeyboardInterrupt
    return 1 if any(row.wrong for row in rows) else 0


def _new() -> int:
    from kvtally.live.zoo import unread

    lines = [f"{name}: not read: model_type `{name}`" for name in unread()]
    say("\n".join(lines or ["every architecture of the installed transformers is read"]))
    return 0


def chosen(only: str | None, known: Sequence[str]) -> list[str]:
    """The architectures that `--only` names, each of them known; all where it is None."""
    if only is None:
        return list(known)
    from difflib import get_close_matches

    wanted = list(dict.fromkeys(name.strip() for name in only.split(",")))
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, n=3) or list(known)
            nearest = ", ".join(f"`{n}`" for n in near)
            raise InputError(f"`--only` has `{name}`, expected causal LMs of transformers; nearest: {nearest}")
    return wanted


def rows_kept(file: str, version: str, kind: Any) -> dict[str, Any]:
    """The rows of this kind that a run before left in `file`, by name; those of another transformers are run again.

    The file is made where there is none, so that one that cannot be written is named before anything is run.
    """
    append(file, "")
    rows = rows_read(file, kind)
    with naming(file, "--results"):
        os.truncate(file, Path(file).read_bytes().rfind(b"\n") + 1)  # what is cut short would spoil the next row
    return {row.name: row for row in rows if row.transformers == version}


def rows_read(file: str, kind: Any) -> list[Any]:
    """All rows of this kind that are in `file`, in order; a last one that was cut short is left out."""
    try:
        *lines, cut = Path(file).read_text(encoding="utf-8").split("\n")
        rows = [kind.from_dict(json.loads(line)) for line in lines]
        if cut[: len(BEGIN)] != BEGIN[: len(cut)]:
            raise ValueError(cut)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", where=file) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableError(
            "has a line that is no row of the zoo, expected what --results wrote", where=file, hint="remove the file"
        ) from None
    if cut:
        complain(f"{file}: the last row was cut short, and is left out")
    return rows


def swept(
    names: Sequence[str],
    kept: Mapping[str, Any],
    visit: Callable[[list[str]], Iterable[Any]],
    *,
    results: str | None,
    told: Callable[[Any, int, int], None],
) -> tuple[list[Any], bool]:
    """The rows of `names` in order of name, and whether Ctrl-C ended it before all were there.

    Those in `kept` are taken as they are, the others are what `visit` gives: each is kept in the file `results` as it
    is done, and `told` with how many of how many there are.
    """
    rows = [kept[name] for name in names if name in kept]
    stopped = False
    try:
        for row in visit([name for name in names if name not in kept]):
            rows.append(row)
            if results is not None:
                append(results, json.dumps(row.to_dict()) + "\n")
            told(row, len(rows), len(names))
    except KeyboardInterrupt:
        stopped = True
    return sorted(rows, key=lambda row: row.name), stopped


def append(file: str, line: str) -> None:
    """Writes a line at the end of a file."""
    with naming(file, "--results"), Path(file).open("a", encoding="utf-8") as stream:
        stream.write(line)


def _progress(row: Row, done: int, everything: int) -> None:
    wrong = next((f"{name}: {o.note}" for name, o in row.outcomes.items() if o.ok is False), "good")
    complain(f"{done}/{everything} {row.name}: {wrong}"[:200])


def deliver(text: str, out: str | None) -> None:
    """Writes a text into the file `out`, or to stdout where that is None, or where it cannot be written."""
    if out is None:
        say(text)
        return
    try:
        write_whole(out, text + "\n", "--out")
    except UnreadableError:
        say(text)
        raise


def _text(rows: Sequence[Row], form: str, version: str) -> str:
    if form == "json":
        return as_json("zoo", {"transformers": version, "rows": [row.to_dict() for row in rows]})
    return _markdown(rows, version) if form == "md" else _table(rows)


def _mark(ok: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[ok]


def summary(rows: Sequence[Row]) -> list[str]:
    """How many of the rows came out well, question by question."""
    from kvtally.live.zoo_row import QUESTIONS

    counts = {name: sum(row.outcomes[name].ok is True for row in rows) for name in QUESTIONS}
    return [f"{counts[name]} of {len(rows)} {what}" for name, what in zip(QUESTIONS, WHAT, strict=True)]


WHAT = (
    "are built",
    "run (uncached, cached, chunked)",
    "are read by kvtally",
    "hold what their real cache holds",
    "have closed = traced in every cell",
)


def _table(rows: Sequence[Row]) -> str:
    from kvtally.live.zoo_row import QUESTIONS

    head = ("architecture", *QUESTIONS, "cells")
    body = [(row.name, *(_mark(o.ok) for o in row.outcomes.values()), f"{row.cells:,}") for row in rows]
    widths = [max(len(line[k]) for line in (head, *body)) for k in range(len(head))]
    lines = ["  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)).rstrip() for line in (head, *body)]
    return "\n".join([*lines, "", *(f"{row}: {why}" for row, why in _reasons(rows)), *_blank(rows), *summary(rows)])


def _blank(rows: Sequence[Row]) -> list[str]:
    return [""] if _reasons(rows) else []


def _reasons(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(r.name, f"{name}: {o.note}") for r in rows for name, o in r.outcomes.items() if o.ok is False]


ABOUT = """One tiny model with random weights of every causal-LM architecture of transformers {version}, built, run and
compared by `kvtally zoo --format md --out docs/zoo.md`, which wrote this page.

- *held*: the elements that kvtally says the cache holds are those of the real cache's tensors, layer by layer. What
  transformers keeps otherwise is named.
- *traced*: the count by formula (kernel dense) equals the count by tracing, in every cell, over uncached, cached and
  chunked passes that run past every window, chunk and top-k.
- *not seen*: cells of work that is done element by element, without a product that tracing could see.
- *no term*: products that were traced and belong to no term, as `uncounted` lists them."""


def _markdown(rows: Sequence[Row], version: str) -> str:
    from kvtally.live.zoo_sizes import EXCEPTIONS

    told = [f"- `{name}` {exception.why}" for name, exception in sorted(EXCEPTIONS.items())]
    reasons = [f"- `{name}`: {escaped(why)}" for name, why in _reasons(rows)] or ["Nothing."]
    parts = [
        "# The zoo",
        ABOUT.format(version=version),
        "\n".join(f"- {line}" for line in summary(rows)),
        markdown_table(HEAD, map(_line, rows)),
        "## What is not so, and why",
        "\n".join(reasons),
        "## What the shrinking rule was told",
        "One rule over names of config fields makes every tiny model. What it cannot know of an architecture:",
        "\n".join(told),
    ]
    return "\n\n".join(parts)


HEAD = (
    *("architecture", "model", "layers", "built", "ran", "read", "held", "traced", "cells"),
    *("not seen", "no term"),
)


def _line(row: Row) -> tuple[object, ...]:
    held = row.held.note if row.held.ok and row.held.note else _mark(row.held.ok)
    asked = [_mark(o.ok) for o in (row.built, row.ran, row.read)]
    missed = ", ".join(f"{n} {term}" for term, n in sorted(row.unseen.items()))
    cells: list[Any] = [f"`{row.name}`", row.model, row.layers or "", *asked, held, _mark(row.traced.ok)]
    return *cells, row.cells or "", missed, len(row.unplaced) or ""


def escaped(text: str) -> str:
    """A text as a page of Markdown takes it."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace(os.linesep, " ")
