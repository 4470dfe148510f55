"""`kvtally check`: is the cache of a model right, scenario by scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvtally.core.errors import InputError, require_one_of
from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.options import integer, number, refuse
from kvtally.frontends.output import say, writable

if TYPE_CHECKING:
    from kvtally.core.agreement import Agreement, Report

FORMATS = ("table", "json", "md")
ZOO_ONLY = ("only", "jobs", "engine", "results", "against", "out")
MODEL_ONLY = ("dtype", "tokens", "seed", "scenarios", "tolerance", "screen")


@click.command()
@click.argument("model", required=False)
@click.option("--scenarios", metavar="all|A,B,…", help="Groups: steps, static, padding, edit, batch … [all].")
@click.option("--dtype", metavar="TYPE", help="float32, bfloat16, float16 or float64 [the weights'; random: float32].")
@click.option("--tokens", metavar="N", help="Tokens of each prompt [24, or past small windows].")
@click.option("--seed", metavar="S", help="Of the random tokens [0].")
@click.option("--tolerance", metavar="SHARE", help="Of the largest logit: more is a DEFECT, in true float64 [1e-6].")
@click.option("--screen", metavar="FACTOR", help="Times the noise without a cache: less is not run again [see docs].")
@click.option("--full-size", is_flag=True, help="A config without weights is built at its size, not shrunk.")
@click.option("--zoo", "everything", is_flag=True, help="Every architecture of the installed transformers.")
@click.option("--only", metavar="A,B,…", help="With --zoo: these architectures.")
@click.option("-n", "jobs", metavar="JOBS", help="With --zoo: architectures at a time [1].")
@click.option("--engine", metavar="local|ray", help="With --zoo: processes here, or a Ray cluster [local].")
@click.option("--results", metavar="FILE", help="With --zoo: keep each row here, and go on from those that are.")
@click.option("--against", metavar="FILE", help="With --zoo: name what differs from the rows kept here before.")
@click.option("--out", metavar="FILE", callback=writable, help="With --zoo: write the table there.")
@click.option("--format", "form", metavar="table|json|md", default="table", help="How to print it [table].")
@click.option("--html", metavar="FILE", callback=writable, help="Write the answer as a web page, too.")
def check(model: str | None, **given: Any) -> int:
    """Compare a model with its cache to itself without, in every way that a cache is used.

    MODEL: a folder with weights, a .gguf file, a Hugging Face id; a config.json, a name of `kvtally models`
    or a model_type (random weights, shrunk); or module:factory for a model of your own.
    0: right. 1: wrong, or it cannot be said. 2: no scenario could run.
    """
    require_one_of("--format", given["form"], FORMATS)
    if given["everything"]:
        return _zoo(model, given)
    refuse(given, ZOO_ONLY, "without `--zoo`")
    if model is None:
        raise InputError("MODEL is missing, expected one, or `--zoo`", hint="kvtally check llama")
    report = asked(model, given)
    say(as_text(report, given["form"]))
    if given["html"] is not None:
        from kvtally.frontends import report as page

        page.write(_page(report), given["html"])
    if report.verdict == "unsupported":
        return InputError.exit_code
    return 0 if report.good else 1


def _zoo(model: str | None, given: dict[str, Any]) -> int:
    from kvtally.frontends.check_zoo import check_zoo

    if model is not None:
        raise InputError(f"`--zoo` and MODEL `{model}` are both given, expected one of them", hint=f"--only {model}")
    refuse(given, (*MODEL_ONLY, "full_size", "html"), "with `--zoo`")
    return check_zoo(form=given["form"], **{name: given[name] for name in ZOO_ONLY if given[name] is not None})


def asked(name: str, given: dict[str, Any]) -> Report:
    """The report that was asked for: real weights with their tiny twin beside them where all scenarios are."""
    from kvtally.core.agreement import LONGEST_RUN, PRECISIONS

    if given["dtype"] is not None:
        require_one_of("--dtype", given["dtype"], PRECISIONS)
    options: dict[str, Any] = {"scenarios": "all" if given["scenarios"] is None else given["scenarios"]}
    if given["tokens"] is not None:
        options["tokens"] = integer("tokens", given["tokens"], least=8, most=LONGEST_RUN)
    if given["seed"] is not None:
        options["seed"] = integer("seed", given["seed"], least=0)
    if given["tolerance"] is not None:
        options["tolerance"] = number("tolerance", given["tolerance"], above=0, below=1)
    if given["screen"] is not None:
        options["screen"] = number("screen", given["screen"], least=0)
    from dataclasses import replace

    from kvtally.live.check import check as run
    from kvtally.live.check import chosen
    from kvtally.live.checked_model import load
    from kvtally.live.twin import check_with_twin

    chosen(options["scenarios"])  # a wrong name is said before a model is loaded
    found = load(name, dtype=given["dtype"], full_size=given["full_size"])
    if found.weights and options["scenarios"] == "all":
        return replace(check_with_twin(found.model, **options), name=name)
    return replace(run(found.model, dtype=found.dtype, **options), name=name)


def as_text(report: Report, form: str) -> str:
    """The report as a table, JSON or Markdown."""
    if form == "json":
        return as_json("check", report.to_dict())
    if form == "md":
        head = ("group", "scenario", "verdict", "error", "precision", "where, note")
        return f"{report.sentence}\n\n{markdown_table(head, map(_cells, report.agreements))}"
    rests = ", ".join(f"{name} {value}" for name, value in report.conventions.items())
    return f"{report}\n{rests}"


def _cells(a: Agreement) -> tuple[str, str, str, str, str, str]:
    said = "; ".join(filter(None, (a.where, a.note)))
    return a.group, a.scenario, a.verdict, a.figure, a.precision, said


def _page(report: Report) -> Any:
    """The page of the report: a bar a group for the scenarios that ran, and for those that are wrong."""
    from kvtally.frontends import report as page

    groups = report.by_group()
    inside = {g: [a for a in report.agreements if a.group == g] for g in groups}
    bars = page.Bars(
        names=("scenarios that ran", "defects"),
        rows=[(g, sum(a.ran for a in found), sum(a in report.defects for a in found)) for g, found in inside.items()],
    )
    return page.Report(
        title=report.name,
        about=report.sentence.splitlines(),
        command=page.command(),
        bars=bars,
        heads=("verdict", "error", "precision", "rule", "where, note"),
        groups=[
            page.Group(
                title=f"{g}: {groups[g]}",
                rows=[(a.scenario, a.verdict, a.figure, a.precision, a.rule, _cells(a)[-1]) for a in found],
            )
            for g, found in inside.items()
        ],
        notes=[f"{name}: {value}" for name, value in report.conventions.items()],
    )
