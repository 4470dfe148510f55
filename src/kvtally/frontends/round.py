"""`kvtally round`: what a cache of lower precision does to the output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvtally.core.errors import InputError, UnreadableError, require_one_of
from kvtally.frontends.as_json import as_json
from kvtally.frontends.options import flag, integer, refuse
from kvtally.frontends.output import say, writable

if TYPE_CHECKING:
    from kvtally.frontends.round_question import RoundQuestion

FORMATS = ("table", "json", "csv", "md")
AXES = ("token", "channel")
TYPES = ("kv_cache_dtype", "k_dtype", "v_dtype", "state_dtype")
EPILOG = """MODEL: a folder with weights, a .gguf file, a Hugging Face id; a config.json, a name of `kvtally models`
or a model_type (random weights, shrunk); or module:factory. Types: fp32 bf16 fp16 fp8_e4m3 fp8_e5m2
fp8_per_token_head int8 int8_per_token_head int4 int2 nvfp4 q8_0 q5_1 q5_0 q4_1 q4_0."""


@click.command("round", epilog=EPILOG)
@click.argument("model", required=False)
@click.option("--text", metavar="FILE", help="The text that every pass is fed.")
@click.option("--prompt", metavar="TEXT", help="A text, instead of a file.")
@click.option("--tokens", metavar="N", help="Of the text the first N; without one N random tokens [64].")
@click.option("--kv-cache-dtype", metavar="A,B,…", help="Types of K and V [bf16,fp8_e4m3,int8,int4].")
@click.option("-ctk", "--k-dtype", metavar="TYPE", help="The type of K, V exact unless given.")
@click.option("-ctv", "--v-dtype", metavar="TYPE", help="The type of V, K exact unless given.")
@click.option("--state-dtype", metavar="TYPE", help="The type of recurrent states [exact].")
@click.option("--group", metavar="32|64|head", help="Elements that share a scale, of int8, int4, int2 [head].")
@click.option("--axis", metavar="token|channel", help="Which way a group of K runs [token].")
@click.option("--residual", metavar="N", help="The newest tokens stay exact, N at most [0].")
@click.option("--chunk", metavar="C", help="Tokens of a call [as many as keep it small].")
@click.option("--full-size", is_flag=True, help="A config without weights is built at its size, not shrunk.")
@click.option("--dial", is_flag=True, help="Every type on a decoder in plain Python, without PyTorch.")
@click.option("--format", "form", metavar="table|json|csv|md", default="table", help="Exact numbers in all but table.")
@click.option("--html", metavar="FILE", callback=writable, help="Write the answer as a web page, too.")
def round_(model: str | None, **given: Any) -> int:
    """Round K and V as they are written to the cache, and compare the output with an exact cache.

    Teacher-forced over a text; everything but the cache stays in float32. By how much is no yes or no: 0 is
    returned whatever the figures say.
    """
    require_one_of("--format", given["form"], FORMATS)
    if given["dial"]:
        return _dial(model, given)
    from kvtally.frontends import round_text
    from kvtally.frontends.progress import reading
    from kvtally.frontends.round_question import answer

    question = _question(model, given)
    show, end = reading("rounding")
    told = None if show is None else lambda done, whole: show(question.model, done, whole)
    try:
        found = answer(question, told)
    finally:
        end()
    say(round_text.as_text(found, given["form"]))
    if given["html"] is not None:
        from kvtally.frontends import report, round_report

        report.write(round_report.page(found, report.command()), given["html"])
    return 0


def _dial(model: str | None, given: dict[str, Any]) -> int:
    """The same question of a decoder in plain Python."""
    if model is not None:
        raise InputError("`MODEL` is given with `--dial`, where it means nothing")
    refuse(given, [name for name in given if name not in ("dial", "form")], "with `--dial`")
    from kvtally.frontends.dial import as_text
    from kvtally.pure.dial import dial

    require_one_of("--format", given["form"], ("table", "json"))
    found = dial()
    say(as_json("round", found.to_dict()) if given["form"] == "json" else as_text(found))
    return 0


def _question(model: str | None, given: dict[str, Any]) -> RoundQuestion:
    """What was asked for; whatever is wrong with it is said before a model is loaded."""
    from kvtally.core.agreement import LONGEST_RUN
    from kvtally.frontends.round_question import DTYPES, RoundQuestion

    if model is None:
        raise InputError("MODEL is missing, expected one, or `--dial`", hint="kvtally round llama")
    for a, b in (("text", "prompt"), ("kv_cache_dtype", "k_dtype"), ("kv_cache_dtype", "v_dtype")):
        if given[a] is not None and given[b] is not None:
            raise InputError(f"`{flag(a)}` and `{flag(b)}` are both given, expected one of them")
    for name in TYPES:
        if given[name] == "":
            raise InputError(f"`{flag(name)}` is '', expected a type", hint="kvtally round --help lists them")
    if given["axis"] is not None:
        require_one_of("--axis", given["axis"], AXES)
    least = {"tokens": 2, "residual": 0, "chunk": 1}
    whole: dict[str, Any] = {
        name: integer(name, given[name], least=n, most=LONGEST_RUN)
        for name, n in least.items()
        if given[name] is not None
    }
    names = DTYPES if given["kv_cache_dtype"] is None else given["kv_cache_dtype"].split(",")
    plain: dict[str, Any] = {name: given[name] for name in (*TYPES[1:], "axis") if given[name] is not None}
    text, source = _text(given)
    return RoundQuestion(
        model=model,
        text=text,
        source=source,
        dtypes=tuple(dict.fromkeys(name.strip() for name in names)),
        group=_group(given["group"]),
        full_size=given["full_size"],
        **whole,
        **plain,
    )


def _group(value: str | None) -> int | str | None:
    """A number of elements, or `head`; whether it is known is for the scheme to say."""
    return integer("group", value, least=0) if value is not None and value.isdecimal() else value


def _text(given: dict[str, Any]) -> tuple[str | None, str]:
    """The text and where it is from."""
    if given["text"] is None:
        return given["prompt"], "the prompt"
    path = Path(given["text"])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UnreadableError(f"cannot be read: {said}, expected a text", where=str(path)) from None
    if not text.strip():
        raise InputError("the text is empty, expected at least 2 tokens", where=str(path))
    return text, path.name
