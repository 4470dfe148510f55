"""The catalogue as a table: name, layers of what kinds, source."""

from __future__ import annotations

from collections import Counter

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import require_one_of
from kvtally.core.passes import LONGEST
from kvtally.core.tally import Term
from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.render import BOLD, DIM, paint
from kvtally.pure import catalogue
from kvtally.pure.config import WITH_ENCODER
from kvtally.pure.model import read_model

FORMATS = ("table", "json", "md")
ENCODED = 1  # tokens of an encoder; what kinds of layers there are does not depend on it
HUB, FILE = "https://huggingface.co/", "/blob/main/config.json"


def listed() -> list[dict[str, str]]:
    """Of each model its name, how many layers of which kinds it has, and where its config was published."""
    rows = []
    for name in catalogue.names():
        entry = catalogue.entry(name)
        decoder = read_model(name, source=ENCODED if entry["config"]["model_type"] in WITH_ENCODER else None)
        rows.append({"name": name, "layers": kinds(decoder), "source": entry["source"]})
    return rows


def as_text(form: str, *, on: bool) -> str:
    """The catalogue in the form that was asked for; `on` colours the table."""
    require_one_of("--format", form, FORMATS)
    if form == "json":
        return as_json("models", {"models": listed()})
    head = ("name", "layers", "source")
    rows = [(row["name"], row["layers"], row["source"].removeprefix(HUB).removesuffix(FILE)) for row in listed()]
    if form == "md":
        return markdown_table(head, rows)
    a, b = (max(len(row[k]) for row in rows) for k in (0, 1))
    lines = [f"{name:<{a}}  {layers:<{b}}  {source}" for name, layers, source in (head, *rows)]
    return "\n".join([paint(lines[0], BOLD, on=on), *lines[1:], "", paint(f"sources: {HUB}…{FILE}", DIM, on=on)])


def kinds(decoder: Decoder) -> str:
    """How many layers attend to everything, slide, or share a latent; and what else they have.

    >>> from kvtally.core.decoder import lesson
    >>> kinds(lesson())
    '1 full'
    """
    found = Counter(_kind(layer) for layer in decoder.layers)
    text = " + ".join(f"{n:,} {kind}" for kind, n in found.items())
    experts = any(layer.mlp and Term.router in layer.mlp.projections(1) for layer in decoder.layers)
    crossed = any(layer.cross for layer in decoder.layers)
    return text + (", MoE" if experts else "") + (", cross" if crossed else "")


def _kind(layer: Layer) -> str:
    if layer.mixer is None:
        return "no mixer"
    k, v = layer.mixer.kv_per_token
    if not k:
        return "recurrent"
    if not v:
        return "latent"
    held = layer.mixer.tokens_held(LONGEST)
    return "full" if held == LONGEST else f"window {held:,}"
