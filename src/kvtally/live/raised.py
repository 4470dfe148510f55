"""What a model or its cache raised: a refusal in its own words, a crash of the cached path, or no memory left."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kvtally.core.errors import InputError, KvtallyError
from kvtally.live.adapter import OPERATIONS, Adapter, Unsupported
from kvtally.live.refusal import brief, refusal_of

LIBRARIES = (str(Path(torch.__file__).parent), sysconfig.get_path("stdlib") + "/")
INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
CACHES = "transformers.cache_utils"  # some classes of layers lack an operation that others have
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # torch's words for it on CPUs and others
MADE = ("fresh", "static", "recording", "branch")


class Crashed(Exception):
    """The cached path fell over where the same call without a cache runs; the text is its own message."""


def guarded(adapter: Adapter) -> Adapter:
    """The same adapter, whose functions raise `Unsupported`, `Crashed` or, without memory, InputError, nothing else.

    A crash is what no `raise` or `assert` of the model or the cache has put in words: a shape that does not fit, an
    index too large. It counts for a call on a cache only where a call without one takes the same tokens, mask and
    positions.
    """
    other: dict[str, Any] = {name: _refusing(getattr(adapter, name)) for name in ("full", *MADE)}
    other |= {name: _crashing(getattr(adapter, name), lambda *_a, **_g: None) for name in OPERATIONS}
    other["extend"] = _crashing(adapter.extend, lambda _cache, ids, **given: adapter.full(ids, **_new(ids, given)))
    other["generate"] = _crashing(adapter.generate, _generated(adapter))
    return replace(adapter, **{name: made for name, made in other.items() if getattr(adapter, name) is not None})


def _new(ids: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What a call without a cache over the new tokens alone is told: a mask has the past in it, too."""
    return {n: v[:, -ids.shape[1] :] if n == "mask" and v is not None else v for n, v in given.items()}


def _generated(adapter: Adapter) -> Callable[..., Any]:
    """The plain generate of the same prompt, without a cache."""

    def run(ids: Any, **options: Any) -> Any:
        plain = {name: options[name] for name in ("attention_mask", "pad_token_id") if name in options}
        return adapter.generate and adapter.generate(ids, **plain, do_sample=False, max_new_tokens=2, use_cache=False)

    return run


def _refusing(call: Callable[..., Any] | None) -> Callable[..., Any]:
    def run(*values: Any, **given: Any) -> Any:
        assert call is not None
        try:
            return call(*values, **given)
        except (Unsupported, Crashed, KvtallyError):
            raise
        except Exception as error:
            raise told(error) from error

    return run


def _crashing(call: Callable[..., Any] | None, uncached: Callable[..., Any]) -> Callable[..., Any]:
    """`call`; where it crashes, `uncached` decides whether that is the fault of the cached path."""
    told_once, alone = _refusing(call), _refusing(uncached)

    def run(*values: Any, **given: Any) -> Any:
        try:
            return told_once(*values, **given)
        except Unsupported as refusal:
            error = refusal.__cause__
            if not isinstance(error, Exception) or refuses(error):
                raise
        try:
            alone(*values, **given)
        except Unsupported as other:
            raise Unsupported(f"{other}; without a cache as well") from other.__cause__
        raise Crashed(f"crashed: {refusal_of(error)}") from error

    return run


def told(error: Exception) -> Exception:
    """`Unsupported` with the error's own message; InputError where memory ran out."""
    if out_of_memory(error):
        return InputError(
            f"out of memory: {brief(error)}", hint="ask for fewer tokens, fewer scenarios, or a smaller dtype"
        )
    return Unsupported(refusal_of(error))


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; of a CPU torch says so in a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY)


def refuses(error: Exception) -> bool:
    """Whether the model or its cache said no: by a statement of its own, with words, or by lacking the operation."""
    if isinstance(error, NotImplementedError):
        return True
    if isinstance(error, AttributeError) and any(c.__module__ == CACHES for c in type(error.obj).__mro__):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    words = "assert" if isinstance(error, AssertionError) and str(error) else "raise"
    return bool(frames) and (frames[-1].line or "").startswith(words) and not _of_library(frames[-1].filename)


def _of_library(file: str) -> bool:
    """Whether a file is of torch or of Python itself, which know nothing of caches."""
    return file.startswith(LIBRARIES[0]) or (file.startswith(LIBRARIES[1]) and not file.startswith(INSTALLED))
