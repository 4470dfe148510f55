"""One self-contained HTML file: the page, its presets, nothing to fetch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError
from kvtally.frontends.sizes import Sizes, sizes_of
from kvtally.pure.catalogue import names
from kvtally.pure.model import read_model

HERE = Path(__file__).parent
STYLES = (HERE.parent / "style.css", HERE / "page.css")
SCRIPTS = tuple(HERE / f"{n}.js" for n in ("tally", "stories", "picture", "figures", "setting", "page", "controls"))


def html(model: str | None = None) -> str:
    """The page as text; it opens with the decoder that `model` leads to, where one is named.

    >>> "<script src" in html()
    False
    """
    own = {} if model is None else {model: sizes_of(read_model(model))}
    return page({**own, **presets()}, model)


def page(decoders: Mapping[str, Sizes], model: str | None = None) -> str:
    """The page as text, with these decoders to choose from; it opens with `model`, or else the lesson."""
    data = {"model": model, "presets": {name: _fields(sizes) for name, sizes in decoders.items()}}
    text = (HERE / "page.html").read_text(encoding="utf-8")
    parts = {"STYLE": _joined(STYLES), "SCRIPT": _joined(SCRIPTS), "DATA": inert(data)}
    for name, part in parts.items():
        text = text.replace(f"/*{name}*/", part)
    return text


def inert(value: Mapping[str, Any]) -> str:
    r"""JSON that cannot end the script element it stands in.

    >>> inert({"name": "</script>"})
    '{"name": "\\u003c/script>"}'
    """
    return json.dumps(value).replace("<", "\\u003c")


def presets() -> dict[str, Sizes]:
    """The models of the catalogue that the page has knobs for, by name; the others are for the terminal."""
    found = {}
    for name in names():
        try:
            found[name] = sizes_of(read_model(name))
        except InputError:  # layers of another kind, or an encoder whose length must be given
            continue
    return found


def _fields(sizes: Sizes) -> dict[str, int | bool]:
    return {
        "layers": sizes.layers,
        "hidden": sizes.hidden,
        "heads": sizes.heads,
        "kvHeads": sizes.kv_heads,
        "headDim": sizes.head_dim,
        "mlp": sizes.mlp,
        "gated": sizes.gated,
        "output": sizes.o_proj,
        "vocab": sizes.vocab,
        "window": sizes.window,
    }


def _joined(paths: tuple[Path, ...]) -> str:
    """The files one after another."""
    return "\n".join(path.read_text(encoding="utf-8").strip() for path in paths)
