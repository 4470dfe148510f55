"""The model that a MODEL argument of `check` leads to: real weights, random ones, or one of your own."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, KvtallyError, UnreadableError
from kvtally.live.harness import build
from kvtally.live.raised import out_of_memory, told
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk, shrunk_config
from kvtally.pure import catalogue
from kvtally.pure.gguf_file import read_header
from kvtally.pure.model import HUB_ID, find_config

FACTORY = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model or an Adapter; whether its weights are real; and the precision it still has to be run in."""

    model: Any
    weights: bool = False
    dtype: str | None = None


def load(name: str, *, dtype: str | None = None, full_size: bool = False) -> Loaded:
    """What `name` leads to.

    Looked for in this order: `module:factory`, a function without arguments that gives a model or an Adapter; a
    .gguf file; a folder with weights; a Hugging Face id; a config.json, its folder, a name of the catalogue or
    a model_type of transformers, built with random weights and shrunk unless `full_size`. No remote code is run.
    """
    path = Path(name)
    if (found := FACTORY.fullmatch(name)) and not path.exists():
        return Loaded(model=_made(*found.groups()), dtype=dtype)
    if name.endswith(".gguf"):
        if not path.is_file():
            raise UnreadableError("no such file, expected a .gguf file", where=name)
        _readable(path)
        return Loaded(model=_pretrained(str(path.parent), dtype, gguf_file=path.name), weights=True)
    if path.is_dir() and any(next(path.glob(pattern), None) for pattern in WEIGHTS):
        return Loaded(model=_pretrained(name, dtype), weights=True)
    if not path.exists() and name not in catalogue.names() and HUB_ID.fullmatch(name):
        find_config(name)  # says in a sentence what is neither here nor on the hub
        return Loaded(model=_pretrained(name, dtype), weights=True)
    config = _config(name, full_size)
    return Loaded(model=scaled(build(config, device="cpu", dtype=dtype or "float32")))


def _readable(path: Path) -> None:
    """Nothing where it is a GGUF file; otherwise an error that says in a sentence what it is."""
    try:
        read_header(path)
    except KvtallyError as error:
        raise error.at(str(path)) from None


def _config(name: str, full_size: bool) -> Any:
    """The transformers config that is built, shrunk unless it is wanted at its size."""
    from transformers import CONFIG_MAPPING, AutoConfig

    if name in CONFIG_MAPPING and name not in catalogue.names() and not Path(name).exists():
        return CONFIG_MAPPING[name]() if full_size else shrunk(name)
    fields, where = find_config(name)
    kind = fields.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise InputError(
            f"`model_type` is {kind!r}, expected one that this transformers knows", where=where, hint="upgrade it"
        )
    left = ("model_type", "auto_map", "quantization_config", "architectures")
    config = AutoConfig.for_model(kind, **{k: v for k, v in fields.items() if k not in left})
    return config if full_size else shrunk_config(config)


def _made(module: str, factory: str) -> Any:
    """What the factory of an own module gives; modules of the working folder are found."""
    where = f"{module}:{factory}"
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise UnreadableError(f"cannot be imported: {error}", where=where) from error
    make = vars(found).get(factory)
    if not callable(make):
        known = ", ".join(f"`{n}`" for n, value in vars(found).items() if callable(value) and not n.startswith("_"))
        raise InputError(f"`{module}` has no function `{factory}`; known: {known or 'none'}", where=where)
    return make()


def _pretrained(name: str, dtype: str | None, **more: Any) -> Any:
    """The causal language model with its weights, from a folder or from the hub."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype=dtype or "auto", **more).eval()
    except Exception as error:  # whatever a file of weights makes its readers raise
        if out_of_memory(error):
            raise told(error) from error
        said = " ".join(str(error).split())
        raise UnreadableError(f"no model can be loaded: {said[:300]}", where=name) from error
