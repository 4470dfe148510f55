"""The model that a MODEL argument of `check` leads to: real weights, random ones, or one of your own."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from kvtally.core.errors import InputError, KvtallyError, UnreadableError
from kvtally.live.harness import build, configured
from kvtally.live.raised import out_of_memory, told
from kvtally.live.refusal import refusal_of, refused
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk, shrunk_config
from kvtally.live.zoo_sizes import source_of
from kvtally.pure import catalogue
from kvtally.pure.config import read_config
from kvtally.pure.gguf_file import read_header
from kvtally.pure.model import HUB_ID, find_config, mode_of

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
    factory = None if mode_of(Path(name)) else FACTORY.fullmatch(name)
    weights = factory is None and _has_weights(name)
    if full_size and (factory or weights):
        raise InputError("`--full-size` is given and the model has its size, expected a config alone", where=name)
    if factory:
        return Loaded(model=_made(*factory.groups()), dtype=dtype)
    if weights:
        return Loaded(model=_pretrained(name, dtype), weights=True)
    return Loaded(model=_built(name, dtype or "float32", full_size))


def _has_weights(name: str) -> bool:
    """Whether it is a .gguf file, a folder with weights or a Hugging Face id."""
    if name.endswith(".gguf"):
        return True
    if mode_of(Path(name)):
        return any(next(Path(name).glob(pattern), None) for pattern in WEIGHTS)
    return name not in catalogue.names() and HUB_ID.fullmatch(name) is not None


def _built(name: str, dtype: str, full_size: bool) -> Any:
    """The model of a config or a model_type with random weights, shrunk unless it is wanted at its size."""
    from transformers import CONFIG_MAPPING

    known = name in CONFIG_MAPPING and name not in catalogue.names() and not mode_of(Path(name))
    fields, where = ({"model_type": name}, name) if known else find_config(name)
    with refused("transformers does not build it", where=where):
        if full_size:
            config = configured(fields)
        elif known:
            config = shrunk(name)
        else:
            config = _shrunk(configured(fields), fields)
        return scaled(build(config, device="cpu", dtype=dtype))


def _shrunk(config: Any, fields: Mapping[str, Any]) -> Any:
    """The config of these fields, shrunk; an error where that would hide a value that `read_config` refuses."""
    small, source = shrunk_config(config), source_of(config.model_type, config)
    wrong = _wrong(fields, source)
    if wrong and not _wrong(small.to_dict(), source):
        raise wrong
    return small


def _wrong(fields: Mapping[str, Any], source: int | None) -> KvtallyError | None:
    """What `read_config` says against a config."""
    try:
        read_config(fields, where="", source=source)
    except KvtallyError as error:
        return error
    return None


def _made(module: str, factory: str) -> Any:
    """What the factory of an own module gives; modules of the working folder are found."""
    where = f"{module}:{factory}"
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise UnreadableError(f"cannot be imported: {error}", where=where) from error
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise UnreadableError(f"cannot be imported: {refusal_of(error)}", where=where) from error
    make = vars(found).get(factory)
    if not callable(make):
        known = ", ".join(f"`{n}`" for n, value in vars(found).items() if callable(value) and not n.startswith("_"))
        raise InputError(f"`{module}` has no function `{factory}`; known: {known or 'none'}", where=where)
    try:
        return make()
    except KvtallyError as error:
        raise error.at(where) from error
    except (Exception, SystemExit) as error:
        hint = "expected is a function without arguments that gives a model or an Adapter"
        raise InputError(f"raised {refusal_of(error)}", where=where, hint=hint) from error


def _pretrained(name: str, dtype: str | None) -> Any:
    """The causal language model with its weights: of a .gguf file, from a folder or from the hub."""
    from transformers import AutoModelForCausalLM

    place, more = _place(name)
    try:
        with unbarred():
            return AutoModelForCausalLM.from_pretrained(place, dtype=dtype or "auto", **more).eval()
    except Exception as error:  # whatever a file of weights makes its readers raise
        if out_of_memory(error):
            raise told(error) from error
        raise UnreadableError(f"no model can be loaded: {refusal_of(error)}", where=name) from error


def _place(name: str) -> tuple[str, dict[str, str]]:
    """What transformers is to load, and how; an error that says in a sentence what cannot be."""
    path = Path(name)
    mode = mode_of(path)
    if not name.endswith(".gguf"):
        if not mode:
            find_config(name)  # says what is neither here nor on the hub
        return name, {}
    if not S_ISREG(mode):
        raise UnreadableError("no such file, expected a .gguf file", where=name)
    try:
        read_header(path)
    except KvtallyError as error:
        raise error.at(name) from None
    return str(path.parent), {"gguf_file": path.name}


@contextmanager
def unbarred() -> Iterator[None]:
    """No progress bars of transformers and its hub where stderr is no terminal; left as they were found."""
    from huggingface_hub import utils as hub
    from transformers.utils import logging

    if sys.stderr.isatty():
        yield
        return
    shown, hidden = logging.is_progress_bar_enabled(), hub.are_progress_bars_disabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
        (hub.disable_progress_bars if hidden else hub.enable_progress_bars)()
