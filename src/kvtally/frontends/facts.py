"""The facts a decoder rests on: what was read, where each came from, and what it makes of the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import require_one_of
from kvtally.core.passes import LONGEST
from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.options import integer
from kvtally.frontends.render import BOLD, paint
from kvtally.pure.config_fields import Fact, shown
from kvtally.pure.described import describe
from kvtally.pure.model import read_model_facts

FORMATS = ("table", "json", "md")
WIDEST = 36  # columns of a value in the table
Line = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """How many layers are alike, and what each holds: K and V elements a token, and elements that do not grow."""

    layers: int
    kind: str
    kv_elements_a_token: int
    state_elements: int

    def to_dict(self) -> dict[str, int | str]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A decoder, and every fact it rests on."""

    decoder: Decoder
    facts: tuple[Fact, ...]

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of layers, in the order in which they come."""
        found = Counter(_kind(layer) for layer in self.decoder.layers)
        return tuple(replace(kind, layers=many) for kind, many in found.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.decoder.name,
            "facts": [{n: getattr(fact, n) for n in ("name", "value", "source", "note")} for fact in self.facts],
            "layers": [kind.to_dict() for kind in self.kinds],
            "decoder": describe(self.decoder),
        }


def facts_of(model: str, source: str | None, form: str) -> ModelFacts:
    """The facts of the decoder that MODEL names."""
    require_one_of("--format", form, FORMATS)
    tokens = None if source is None else integer("source", source, least=1)
    decoder, facts = read_model_facts(model, source=tokens)
    return ModelFacts(decoder=decoder, facts=facts)


def as_text(found: ModelFacts, form: str, *, on: bool) -> str:
    """The answer in the form that was asked for; `on` colours the table."""
    if form == "json":
        return as_json("facts", found.to_dict())
    value = shown if form == "md" else _cut
    read = [(fact.name, value(fact.value), fact.source) for fact in found.facts if not fact.note]
    aside = [(fact.name, value(fact.value), fact.note) for fact in found.facts if fact.note]
    layers = [(f"{k.layers:,}", k.kind, f"{k.kv_elements_a_token:,}", f"{k.state_elements:,}") for k in found.kinds]
    parts: list[tuple[Line, Sequence[Line]]] = [
        (("fact", "value", "from"), read),
        (("set aside", "value", "why"), aside),
        (("layers", "kind", "K and V elements a token", "state"), layers),
    ]
    if form == "md":
        return "\n\n".join(markdown_table(head, rows) for head, rows in parts if rows)
    return "\n\n".join(_columns([head, *rows], on) for head, rows in parts if rows)


def _columns(lines: Sequence[Line], on: bool) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    text = ["  ".join([*map(str.ljust, line, widths), line[-1]]).rstrip() for line in lines]
    return "\n".join([paint(text[0], BOLD, on=on), *text[1:]])


def _cut(value: object) -> str:
    text = shown(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _kind(layer: Layer) -> LayerKind:
    own = [m for m, writes in zip(layer.mixers, layer.writers, strict=True) if writes]
    reach = {m.tokens_held(LONGEST) for m in layer.mixers if any(m.kv_per_token) and m is not layer.cross}
    words = [f"at most {held:,} tokens" for held in sorted(reach) if held < LONGEST]
    words += [f"reads layer {layer.reads}"] if layer.reads is not None else []
    words += ["cross"] if layer.cross else []
    return LayerKind(
        layers=1,
        kind=", ".join([_mixes(layer), *words]),
        kv_elements_a_token=sum(sum(m.kv_per_token) for m in own if m is not layer.cross),
        state_elements=sum(m.state for m in own),
    )


def _mixes(layer: Layer) -> str:
    """The kinds of its mixers, as a description spells them, and of its MLP."""
    said = describe(Decoder(hidden_size=1, vocab_size=0, layers=(replace(layer, reads=None),)))["layers"][0]
    parts = [said[name] for name in ("mixer", "mlp") if name in said]
    holds = [any(mixer.kv_per_token) or mixer.state > 0 for mixer in layer.beside]
    parts[1:1] = [mixer for mixer, kept in zip(said.get("beside", ()), holds, strict=True) if kept]
    return " + ".join(part["kind"].replace("_", " ") for part in parts) or "nothing"
