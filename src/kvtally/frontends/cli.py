"""The command line: parse, call one function, render."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import click

from kvtally import __version__
from kvtally.core.errors import InputError, KvtallyError
from kvtally.frontends import options, render
from kvtally.frontends.check import check
from kvtally.frontends.explore.command import explore
from kvtally.frontends.output import complain, drop_stdout, open_streams, say, say_help, writable
from kvtally.frontends.question import answer
from kvtally.frontends.replay_command import replay
from kvtally.frontends.round import round_
from kvtally.frontends.size_command import size
from kvtally.frontends.zoo import zoo

HELP = """kvtally: what a KV cache saves, what it costs, and whether it is right

  What is saved, what still grows?    kvtally count llama-3.1-8b
  How many bytes, and what fits?      kvtally size llama-3.1-8b --memory 80GiB
  Is the cache of my model right?     kvtally check path/to/model
  And if it keeps K and V in 4 bits?  kvtally round llama --kv-cache-dtype int4
  What is reuse worth on my traffic?  kvtally replay trace.jsonl
  Which models are built in?          kvtally models
  Where does each fact come from?     kvtally facts gemma-2-9b
  Do the counts hold in transformers? kvtally zoo --only llama
  Can I see it, and play with it?     kvtally explore
  Can I build one myself?             kvtally lab start my-cache

Options of a verb: kvtally count --help"""
MODEL = """MODEL: a config.json or its folder, a .gguf file, a Hugging Face id, one of `kvtally models`,
or a file that describes the layers (docs/describe.md)."""
LESSON = "Without it: the lesson, one layer of one head."
INTERRUPTED = 130
COMPLETE = "_KVTALLY_COMPLETE"  # set by a shell that asks for its script, or for what a word may become


@click.group(invoke_without_command=True, add_help_option=False)
@click.option("--help", "-h", "wanted", is_flag=True)
@click.option("--version", is_flag=True)
def kvtally(wanted: bool, version: bool) -> None:
    """Version or overview; the verbs are commands of their own."""
    if version:
        say(f"kvtally {__version__}")
    elif wanted or click.get_current_context().invoked_subcommand is None:
        say(HELP)


@kvtally.command(epilog=f"{MODEL} {LESSON}")
@click.argument("model", required=False)
@click.option(
    "--prompt",
    metavar="P",
    help="Tokens of the prompt [512; with --against 16; without MODEL 1, unless it is edited or in chunks].",
)
@click.option(
    "--new", metavar="N", help="Tokens generated [128; with --against 8; without MODEL 100, unless as above]."
)
@click.option("--lengths", metavar="N,N,…", help="The table by number of generated tokens.")
@click.option("--edit-at", metavar="M", help="Compute again from position M on, against all again.")
@click.option("--turns", metavar="U+N,…", help="A conversation, cache carried against resent whole.")
@click.option("--chunk", metavar="C", help="The prompt in chunks of C tokens, against one prefill.")
@click.option("--kernel", metavar="causal|dense", help="Pairs the mask allows [causal], or all a kernel multiplies.")
@click.option("--uncached", metavar="lesson|forward", help="Loop without cache [forward; one layer lesson].")
@click.option("--batch", metavar="B", default="1", help="Sequences like it [1].")
@click.option("--source", metavar="S", help="Tokens an encoder reads (whisper, t5).")
@click.option("--absorbed", is_flag=True, help="Latent attention with kv_b_proj absorbed, as engines run it.")
@click.option("--layers", metavar="L", help="A decoder by its sizes, instead of MODEL: layers, all alike [1].")
@click.option("--hidden", metavar="D", help="Its hidden size [64].")
@click.option("--heads", metavar="H", help="Its query heads [1].")
@click.option("--kv-heads", metavar="K", help="Its heads of keys and values [1].")
@click.option("--head-dim", metavar="d", help="The width of a head [64].")
@click.option("--mlp", metavar="W", help="The width of its MLP; 0 for none [0].")
@click.option("--no-gate", is_flag=True, help="Its MLP has no gate.")
@click.option("--o-proj", is_flag=True, help="It has an output projection.")
@click.option("--vocab", metavar="V", help="Its vocabulary; 0 for no output head [0].")
@click.option("--window", metavar="W", help="Tokens a query sees; 0 for all [0].")
@click.option("--against", metavar="executed|traced", help="Count again by running it, compare every cell.")
@click.option("--by", metavar="layer|phase|term", help="What the rows of the table are.")
@click.option("--format", "form", metavar="table|json|csv|md", default="table", help="Exact numbers in all but table.")
@click.option("--html", metavar="FILE", callback=writable, help="Write the answer as a web page, too.")
def count(model: str | None, **given: Any) -> int:
    """Count multiplications, token states, comparisons and cache elements.

    Without the cache against with it, prefill and decode apart, exact.
    """
    options.check(given)
    decoder = options.decoder(model, given)
    questions = options.questions(decoder, model, given)
    evidence = options.evidence(questions[0], model, given)
    answers = [answer(question) for question in questions]
    say(render.as_text(answers, evidence, form=given["form"], by=given["by"], many=given["lengths"] is not None))
    if given["html"] is not None:
        from kvtally.frontends import count_report, report

        many = given["lengths"] is not None
        page = count_report.report(answers, evidence, by=given["by"], many=many, command=report.command())
        report.write(page, given["html"])
    if evidence and given["form"] == "csv":
        complain("\n".join(render.evidence_lines(evidence, on=False)))
    return 0 if evidence is None or evidence.agree else 1


@kvtally.command()
@click.option("--format", "form", metavar="table|json|md", default="table", help="How to print it [table].")
def models(form: str) -> None:
    """List the built-in models: name, layers, what kinds, source."""
    from kvtally.frontends.models import as_text

    say(as_text(form, on=render.coloured()))


@kvtally.command(epilog=MODEL)
@click.argument("model")
@click.option("--source", metavar="S", help="Tokens an encoder reads (whisper, t5).")
@click.option("--format", "form", metavar="table|json|md", default="table", help="Values in full in all but table.")
def facts(model: str, source: str | None, form: str) -> None:
    """Show what was read of a model, where each fact came from, and its kinds of layers."""
    from kvtally.frontends.facts import as_text, facts_of

    say(as_text(facts_of(model, source, form), form, on=render.coloured()))


@kvtally.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def lab(words: tuple[str, ...]) -> int:
    """Build a KV cache yourself, step by step, in a file that is checked and counted."""
    from kvtally.frontends.lab.command import lab as lesson_commands

    with lesson_commands.make_context("kvtally lab", list(words)) as context:
        return lesson_commands.invoke(context) or 0


kvtally.add_command(check)
kvtally.add_command(explore)
kvtally.add_command(replay)
kvtally.add_command(round_)
kvtally.add_command(size)
kvtally.add_command(zoo)
say_help(kvtally)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0 yes, 1 no, 2 wrong question, 3 missing or unreadable, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        return _run(words)
    except (KeyboardInterrupt, click.Abort):  # Abort: at a question
        complain("kvtally: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read stdout has seen enough
        drop_stdout()
        return 0
    except KvtallyError as error:
        complain(str(error))
        return error.exit_code


def _run(words: list[str]) -> int:
    if COMPLETE in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(kvtally, {}, "kvtally", COMPLETE, os.environ[COMPLETE])
    if words and not words[0].startswith("-") and words[0] not in kvtally.commands:
        raise unknown("no command", words[0], kvtally.commands, where="kvtally")
    try:
        with kvtally.make_context("kvtally", words, obj=tuple(words)) as context:
            return kvtally.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.NoSuchOption as error:
        where = error.ctx.command_path if error.ctx else "kvtally"
        known = [name for p in error.ctx.command.params for name in p.opts] if error.ctx else []
        raise unknown("no option", error.option_name, [n for n in known if n.startswith("--")], where=where) from None
    except click.UsageError as error:
        where = " ".join(["kvtally", *(w for w in words[:1] if w in kvtally.commands)])
        problem = _lowered(error.format_message().replace("'", "`"))
        raise InputError(problem, where=where, hint=f"{where} --help lists every option") from None


def unknown(what: str, name: str, known: Iterable[str], *, where: str) -> InputError:
    """The error for a name that is not known, with the nearest ones, or all where none is near."""
    known = list(known)
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    listed = ", ".join(f"`{n}`" for n in near or known)
    return InputError(
        f"{what} `{name}`; {'nearest' if near else 'known'}: {listed}",
        where=where,
        hint=f"{where} --help lists them all",
    )


def _lowered(message: str) -> str:
    return (message[:1].lower() + message[1:]).rstrip(".")
