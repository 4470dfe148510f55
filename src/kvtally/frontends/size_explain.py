"""`kvtally size --explain`: a line of an engine's log, reproduced from the model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import KvtallyError, require_one_of
from kvtally.frontends.as_json import as_json
from kvtally.frontends.options import integer
from kvtally.frontends.render import GREEN, RED, paint
from kvtally.frontends.size_options import question
from kvtally.pure.explain import LONGEST_TEXT, explain_all
from kvtally.pure.explained import Explanation

FORMATS = ("table", "json")


def explanations(decoder: Decoder, given: Mapping[str, Any], weights: int | None) -> tuple[Explanation, ...]:
    """What every known line of `--explain` says; `-` reads the lines from stdin.

    A length or a memory is taken into account where it was typed, as the line itself may say another.
    """
    require_one_of("--format", given["form"], FORMATS)
    asked = question(decoder, given, weights)
    text = sys.stdin.read(LONGEST_TEXT + 1) if given["explain"] == "-" else given["explain"]
    typed = None if given["tokens"] is None else integer("tokens", given["tokens"], least=1)
    memory = asked.memory.free if asked.memory else None
    try:
        return explain_all(text, decoder, block_size=asked.block_size, tokens=typed, memory=memory, **asked.named)
    except KvtallyError as error:
        raise error.at("--explain") from None


def as_text(found: tuple[Explanation, ...], form: str, *, on: bool) -> str:
    """The explanations as text or JSON; what differs is red, what agrees green, if `on`."""
    if form == "json":
        return as_json("size", {"explained": [one.to_dict() for one in found]})
    return "\n\n".join(_coloured(one, on=on) for one in found)


def _coloured(one: Explanation, *, on: bool) -> str:
    head, printed, computed, *more = str(one).split("\n")
    return "\n".join([head, printed, paint(computed, GREEN if one.agrees else RED, on=on), *more])
