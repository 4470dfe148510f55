"""`kvtally size`: bytes held and reserved, what fits, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvtally.core.errors import InputError
from kvtally.frontends.output import complain, say, writable

if TYPE_CHECKING:
    from kvtally.frontends.size_question import SizeAnswer, SizeQuestion
    from kvtally.live.size_measured import CacheMeasured

EPILOG = """MODEL: a config.json or its folder, a .gguf file, a Hugging Face id, one of `kvtally models`,
or a file that describes the layers. Types: fp32 bf16 fp16 fp8 fp8_per_token_head int8 int8_per_token_head int4
int4_per_token_head int2 nvfp4 q8_0 q5_1 q5_0 q4_1 q4_0; int8, int4 and int2 also as int4_g32 or int4_g64,
in groups of 32 or 64 with a scale and a zero each. Bytes are written 80GiB, 24GB or 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What was asked for beside the size: its record for JSON, and a function of `on` that gives its text."""

    name: str
    record: Any
    text: Callable[..., str]


@click.command(epilog=EPILOG)
@click.argument("model")
@click.option("--tokens", metavar="T", help="Tokens of a request [32768].")
@click.option("--batch", metavar="B", help="Requests like it [1].")
@click.option("--kv-cache-dtype", metavar="TYPE", default="bf16", help="The type of K and V [bf16].")
@click.option("-ctk", "--k-dtype", metavar="TYPE", help="The type of K alone.")
@click.option("-ctv", "--v-dtype", metavar="TYPE", help="The type of V alone.")
@click.option("--tensor-parallel-size", metavar="N", default="1", help="Devices that share the heads [1].")
@click.option("--block-size", metavar="S", help="Tokens of a page, in engines that have pages.")
@click.option("--engine", metavar="all|NAME", help="transformers, vllm, sglang or llama.cpp [all].")
@click.option("--source", metavar="S", help="Tokens an encoder reads (whisper, t5).")
@click.option("--memory", metavar="BYTES", help="Memory of a device: how much fits?")
@click.option("--weights", metavar="BYTES|auto", help="Weights to be taken off; auto reads safetensors or GGUF.")
@click.option("--gpu-memory-utilization", metavar="U", help="The share that may be used [0.9].")
@click.option(
    "--explain", metavar="LINE", help="A line of an engine's log (- for stdin): which quantity is it, and why?"
)
@click.option("--measure", is_flag=True, help="Measure a real transformers cache, compare every layer.")
@click.option("--roofline", is_flag=True, help="When is a pass bound by memory, when by arithmetic?")
@click.option("--ridge", metavar="R", help="FLOPs a byte, or FLOP/s over bytes/s [295, H100 SXM at bf16].")
@click.option("--fast-memory", metavar="BYTES", help="From which prompt on are N x N scores larger?")
@click.option("--plot", metavar="FILE", callback=writable, help="Bytes against context length, as .svg or .html.")
@click.option("--also", metavar="MODEL:TYPE,…", help="More curves in the picture.")
@click.option("--facts", is_flag=True, help="Where each fact of the model came from.")
@click.option("--format", "form", metavar="table|json|csv|md", default="table", help="Exact numbers in all but table.")
@click.option("--html", metavar="FILE", callback=writable, help="Write the answer as a web page, too.")
def size(model: str, **given: Any) -> int:
    """Size the KV cache: what attention needs of it, what engines reserve, what fits.

    The multiplications of the memory formula are written out. Returns 1 where what was asked for does not
    fit, --measure disagrees, or a line of --explain differs.
    """
    from kvtally.frontends import size_options, size_text
    from kvtally.frontends.options import integer
    from kvtally.frontends.render import coloured
    from kvtally.frontends.size_question import answer
    from kvtally.pure.model import read_model_facts

    size_options.check(given)
    source = None if given["source"] is None else integer("source", given["source"], least=1)
    decoder, found = read_model_facts(model, source=source)
    weights = size_options.weights(model, given["weights"])
    if given["explain"] is not None:
        from kvtally.frontends import size_explain

        explained = size_explain.explanations(decoder, given, weights)
        say(size_explain.as_text(explained, given["form"], on=coloured()))
        return 0 if all(one.agrees for one in explained) else 1
    question = size_options.question(decoder, given, weights)
    sized = answer(question)
    measured = _measured(model, question, source) if given["measure"] else None
    beside = _beside(question, found, measured, given)
    more = {one.name: one.record for one in beside}
    texts = [one.text(on=coloured()) for one in beside]
    below = texts if given["form"] in ("table", "md") else []  # JSON has the records
    say("\n\n".join([size_text.as_text(sized, form=given["form"], more=more), *below]))
    if given["form"] == "csv" and texts:
        complain("\n\n".join(texts))
    _files(sized, beside, given)
    return 0 if sized.good and (measured is None or measured.agree) else 1


def _beside(
    question: SizeQuestion, found: tuple[Any, ...], measured: CacheMeasured | None, given: dict[str, Any]
) -> list[Beside]:
    """What was measured, the roofline and the facts, where they are asked for."""
    from kvtally.frontends import size_options, size_roofline, size_text
    from kvtally.frontends.facts import ModelFacts, as_text

    made = []
    if measured:
        text = partial(size_text.measured_text, measured)
        made.append(Beside(name="measured", record=measured.to_dict(), text=text))
    if given["roofline"]:
        fast = given["fast_memory"]
        bytes_fast = None if fast is None else size_options.count_of_bytes("fast_memory", fast)
        line = size_roofline.asked(question, size_options.ridge(given["ridge"]), bytes_fast)
        made.append(Beside(name="roofline", record=line.to_dict(), text=partial(size_roofline.text, line)))
    if given["facts"]:
        facts = ModelFacts(decoder=question.decoder, facts=found)
        text = partial(as_text, facts, "md" if given["form"] == "md" else "table")
        made.append(Beside(name="facts", record=facts.to_dict()["facts"], text=text))
    return made


def _measured(model: str, question: SizeQuestion, source: int | None) -> CacheMeasured:
    """What a real cache of the model holds; only a config that transformers builds from can be measured."""
    from kvtally.pure.described import MARK
    from kvtally.pure.model import find_config

    config = {} if model.endswith(".gguf") else find_config(model)[0]
    if not config or MARK in config:
        raise InputError(f"`--measure` is given with `{model}`, expected a config that transformers can build from")
    if question.types.k != question.types.v or question.devices > 1 or question.batch > 1:
        raise InputError(
            "`--measure` is given with K and V of two types, several requests or several devices, expected one of each"
        )
    from kvtally.live.size_measured import measured_cache

    return measured_cache(config, question.tokens, dtype=str(question.types.k), source=source)


def _files(sized: SizeAnswer, beside: list[Beside], given: dict[str, Any]) -> None:
    """Writes the picture and the page that were asked for."""
    if given["plot"] is not None:
        from kvtally.frontends import plot, size_plot

        plot.write(size_plot.picture(sized, given["also"]), Path(given["plot"]))
    if given["html"] is not None:
        from kvtally.frontends import report, size_report

        texts = [report.Text(title=one.name.capitalize(), text=one.text(on=False)) for one in beside]
        report.write(size_report.page(sized, report.command(), texts), given["html"])
