"""Well-known models by short names: their facts, and where those were published."""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError


def names() -> tuple[str, ...]:
    """The names of all models in the catalogue, in alphabetical order.

    >>> "gpt2" in names()
    True
    """
    return tuple(sorted(_models()))


def entry(name: str) -> dict[str, Any]:
    """What the catalogue holds of a model: its `config`, in the config's own words, and its `source`.

    Only the fields that cost depends on are kept. An unknown name is an InputError that offers the
    nearest ones.

    >>> entry("gpt2")["config"]["n_embd"], entry("gpt2")["source"]
    (768, 'https://huggingface.co/openai-community/gpt2/blob/main/config.json')
    """
    models = _models()
    if name not in models:
        near = get_close_matches(name.lower(), models, n=3, cutoff=0.5)
        offer = "did you mean " + " or ".join(f"`{n}`" for n in near) + "?" if near else ""
        raise InputError(
            f"`{name:.60}` is no file, no folder and not in the catalogue",
            hint=" ".join(filter(None, (offer, "`kvtally models` lists the catalogue"))),
        )
    return models[name]


@cache
def _models() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)
    return models
