"""`kvtally replay`: what reuse is worth on real traffic, for every cache size at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import click

from kvtally.core.errors import InputError, UnreadableError, require_number, require_one_of
from kvtally.frontends.options import filled, flag, integer, need, refuse
from kvtally.frontends.output import complain, naming, say, whole, writable

if TYPE_CHECKING:
    from kvtally.frontends.replay_question import Question, ReplayAnswer
    from kvtally.traffic.requests import Requests

EPILOG = """TRACE: Mooncake, Bailian, WEKA or RAGPulse traces, LMCache lookup logs, token ids, chat logs and batches,
LiteLLM, Langfuse, OpenTelemetry gen_ai and OpenInference spans, SGLang logs, Claude Code sessions, tables in Parquet,
or what `kvtally replay convert TRACE… --to FILE.parquet` wrote; plain, .gz, .zst, a folder, a glob, - for stdin."""
CONVERT = "convert"
BY = ("session", "model", "tenant")
CACHE_PER = ("model", "tenant")
ENGINES = ("local", "ray")
UNITS = {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86400}
FORMATS = ("table", "json", "csv", "md")
DEFAULTS = {
    "kv_cache_dtype": "bf16", "min_prefix": "0", "mode": "ideal", "replicas": "1", "route": "sticky",
    "engine": "local", "form": "table",
}  # fmt: skip
NEEDS = (("kv_cache_dtype", "model"), ("route", "replicas"))
READING = ("trace_format", "trace_block_size", "tokenizer", "skip_bad")  # how traces are read that are not converted
CONVERTED = {"block_size", "to", *READING}  # what `convert` reads


@click.command(epilog=EPILOG)
@click.argument("traces", nargs=-1, metavar="TRACE…")
@click.option("--model", metavar="MODEL", help="Whose cache it is: memory in bytes.")
@click.option("--block-size", metavar="S", help="Tokens of a block: a multiple of the trace's; text [16].")
@click.option("--kv-cache-dtype", metavar="TYPE", help="The type of its K and V [bf16].")
@click.option("--ttl", metavar="TIME", help="Blocks are dropped so long after they were last asked for: 5min.")
@click.option("--min-prefix", metavar="N", help="Hits of fewer blocks count as none [0].")
@click.option("--policy", metavar="P,…", help="At --capacity: lru, fifo, lfu, s3fifo, arc, belady.")
@click.option("--mode", metavar="ideal|vllm", help="vllm: its own block manager, at --capacity, too.")
@click.option("--capacity", metavar="C,…", help="Blocks of the cache, for --policy and --mode vllm.")
@click.option("--replicas", metavar="N", help="Replicas with caches of their own [1].")
@click.option("--route", metavar="R", help="random, round-robin, sticky or longest-prefix [sticky].")
@click.option("--cache-per", metavar="model|tenant", help="A cache of its own for each.")
@click.option("--by", metavar="session|model|tenant", help="The hit share of each.")
@click.option("--trace-format", metavar="NAME", help="The format of the trace, where it is not found out.")
@click.option("--trace-block-size", metavar="S", help="Tokens of a block in the trace, where it does not say.")
@click.option("--tokenizer", metavar="FILE", help="A tokenizer.json, for traces that hold text.")
@click.option("--skip-bad", is_flag=True, help="Skip and count what cannot be read.")
@click.option("--to", metavar="FILE", help="With convert: the Parquet file to write.")
@click.option("--engine", metavar="local|ray", help="Here, or converted traces on Ray [local].")
@click.option("--format", "form", metavar="table|json|csv|md", help="Exact numbers in all but table.")
@click.option("--html", metavar="FILE", callback=writable, help="Write the answer as a web page, too.")
@click.option("--out", metavar="DIR", help="Write replay.json and the table of runs, runs.parquet, too.")
def replay(traces: tuple[str, ...], **given: Any) -> int:
    """Replay a trace: what a prefix cache would save, what memory it needs, what breaks it.

    Least recently used blocks go first; every capacity is judged in one pass.
    """
    from kvtally.frontends.render import coloured

    if traces[:1] == (CONVERT,):
        refuse(given, (name for name in given if name not in CONVERTED), "with `convert`")
        complain(_convert(traces[1:], given))
        return 0
    given = _checked(given)
    found = (_here if given["engine"] == "local" else _on_ray)(traces, given, _question(given))
    from kvtally.frontends import replay_text

    say(replay_text.as_text(found, given["form"], on=coloured()))
    _files(found, given)
    return 0


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """What was given and the defaults of what was not; options that are unknown or have no effect are refused."""
    if given["to"] is not None:
        raise InputError("`--to` is given without `convert`", hint="kvtally replay convert TRACE… --to FILE.parquet")
    need(given, NEEDS)
    given = filled(given, DEFAULTS)
    for name, known in (("form", FORMATS), ("engine", ENGINES), ("by", BY), ("cache_per", CACHE_PER)):
        if given[name] is not None:
            require_one_of(flag(name), given[name], known)
    if given["engine"] == "ray":
        refuse(given, READING, "with `--engine ray`", hint="Ray reads what `kvtally replay convert` wrote")
    if given["form"] == "csv" and given["html"] is None and given["out"] is None:
        refuse(given, ["by"], "with `--format csv`", hint="JSON has every part")
    return given


def _here(traces: tuple[str, ...], given: dict[str, Any], question: Question) -> ReplayAnswer:
    requests = _read(traces, given)
    from kvtally.frontends.progress import reading
    from kvtally.frontends.replay_question import answer

    told, end = reading("counting")
    try:
        return answer(traces, requests, question, told)
    finally:
        end()


def _on_ray(traces: tuple[str, ...], given: dict[str, Any], question: Question) -> ReplayAnswer:
    from kvtally.frontends.replay_question import answer_on_ray

    if question.rules:
        raise InputError("`--policy` or `--mode vllm` is given with `--engine ray`, expected one of them")
    _named(traces)
    return answer_on_ray(traces, question, _size(given, "block_size"))


def _question(given: dict[str, Any]) -> Question:
    import kvtally.traffic  # noqa: F401  # names its extra where that is missing
    from kvtally.frontends.replay_question import Question
    from kvtally.frontends.replay_rules import asked
    from kvtally.pure.model import read_model
    from kvtally.traffic.routing import ROUTES

    require_one_of("--route", given["route"], ROUTES)
    rules, capacities = asked(given["policy"], given["mode"], given["capacity"])
    replicas = integer("replicas", given["replicas"], least=1)
    if rules and (replicas > 1 or given["cache_per"]):
        other = "--replicas" if replicas > 1 else "--cache-per"
        raise InputError(f"`--policy` or `--mode vllm` is given with `{other}`, expected one of them")
    return Question(
        decoder=None if given["model"] is None else read_model(given["model"]),
        dtype=given["kv_cache_dtype"],
        ttl=None if given["ttl"] is None else seconds("ttl", given["ttl"]),
        min_prefix=integer("min_prefix", given["min_prefix"], least=0),
        by=given["by"],
        replicas=replicas,
        route=given["route"],
        cache_per=given["cache_per"],
        rules=rules,
        capacities=capacities,
    )


def seconds(name: str, written: str) -> float:
    """A time such as 90, 90s, 5min or 1h in seconds.

    >>> seconds("ttl", "5min"), seconds("ttl", "90"), seconds("ttl", "1h")
    (300.0, 90.0, 3600.0)
    """
    number = written.rstrip(ascii_lowercase)
    try:
        time = float(number) * UNITS[written[len(number) :]]
    except (KeyError, ValueError):
        raise InputError(f"`--{name}` is {written!r:.40}, expected a time, such as 90s, 5min or 1h") from None
    return require_number(flag(name), time, above=0)


def _read(traces: tuple[str, ...], given: dict[str, Any]) -> Requests:
    from kvtally.frontends.progress import reading
    from kvtally.traffic.read import read

    _named(traces)
    if given["tokenizer"] is not None and not os.path.lexists(given["tokenizer"]):  # also where no text asks for it
        raise UnreadableError("no such file, expected a tokenizer.json", where=given["tokenizer"])
    sizes = {name: _size(given, name) for name in ("block_size", "trace_block_size")}
    progress, end = reading()
    try:
        return read(
            traces,
            form=given["trace_format"],
            tokenizer=given["tokenizer"],
            skip_bad=given["skip_bad"],
            progress=progress,
            **sizes,
        )
    finally:
        end()


def _named(traces: tuple[str, ...]) -> None:
    if not traces:
        raise InputError("no trace is named", where="kvtally replay", hint="name files, or - for stdin")


def _size(given: dict[str, Any], name: str) -> int | None:
    return None if given[name] is None else integer(name, given[name], least=1)


def _convert(traces: tuple[str, ...], given: dict[str, Any]) -> str:
    """Writes the trace as Parquet; what is said about it."""
    if given["to"] is None:
        raise InputError("`convert` is given without `--to`", hint="kvtally replay convert TRACE… --to FILE.parquet")
    requests = _read(traces, given)
    from kvtally.traffic.canonical import write_parquet

    write_parquet(requests, given["to"])
    notes = "".join(f"\nnote: {note}" for note in requests.notes)
    return f"{given['to']}: {len(requests):,} requests, {requests.accesses:,} blocks{notes}"


def _files(answer: ReplayAnswer, given: dict[str, Any]) -> None:
    """Writes the page and the folder that were asked for."""
    if given["html"] is not None:
        from kvtally.frontends import replay_report, report

        report.write(replay_report.page(answer, report.command()), given["html"])
    if given["out"] is not None:
        _folder(answer, given["out"])


def _folder(answer: ReplayAnswer, folder: str) -> None:
    """replay.json and runs.parquet, each written whole or not at all."""
    import pyarrow.parquet as pq

    from kvtally.frontends.replay_text import as_text

    with naming(folder, "--out"), suppress(FileExistsError):
        Path(folder).mkdir(parents=True)
    with whole(Path(folder) / "replay.json") as record:
        record.write_text(as_text(answer, "json", on=False) + "\n", encoding="utf-8")
        with whole(Path(folder) / "runs.parquet") as table:
            pq.write_table(answer.table.table(), table)
