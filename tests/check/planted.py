"""Plant a fault in transformers for a while: a method of one of its classes replaced, and put back after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

Patch = tuple[Any, str, Callable[[Any], Any]]  # owner, name, original -> faulty
ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: its kind as the public ones are sorted, the model it is planted in, and who must see it.

    `groups` are scenario groups of which at least one must report it; `where` are words that the
    place of at least one report must have, all of them; `verdicts` the ones that name the fault.
    """

    name: str
    kind: str
    model: str
    groups: tuple[str, ...]
    patches: tuple[Patch, ...]
    where: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ("DEFECT",)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The fault in place inside, transformers as it was after."""
    with ExitStack() as stack:
        for owner, name, make in fault.patches:
            stack.enter_context(_replaced(owner, name, make))
        yield


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    before = vars(owner).get(name, ABSENT)
    setattr(owner, name, make(getattr(owner, name, None)))
    try:
        yield
    finally:
        if before is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def call_of(change: Callable[[dict[str, Any], int, int], None]) -> Callable[[Any], Any]:
    """A forward whose keywords `change(given, past, new)` has had its way with."""

    def make(forward: Any) -> Any:
        @wraps(forward)
        def call(self: Any, *args: Any, **given: Any) -> Any:
            if args:
                given["input_ids"] = args[0]
            ids = given.get("input_ids", given.get("decoder_input_ids"))
            change(given, held(given.get("cache")), ids.shape[1])
            return forward(self, **given)

        return call

    return make


def attention_of(change: Callable[[Any, dict[str, Any], int, int], None]) -> Callable[[Any], Any]:
    """The forward of an attention, whose keywords `change(module, given, past, new)` has had its way with."""

    def make(forward: Any) -> Any:
        @wraps(forward)
        def call(self: Any, *args: Any, **given: Any) -> Any:
            hidden = args[0] if args else given["hidden_states"]
            change(self, given, held(given.get("cache"), self.layer_idx), hidden.shape[1])
            return forward(self, *args, **given)

        return call

    return make


Stored = tuple[Any, Any]


def storing(change: Callable[[Any, Any, Any, int], Stored], *, layer: int | None = None) -> Callable[[Any], Any]:
    """`Cache.update` that stores what `change(old layer, key, value, past)` makes of a key and value, in one layer."""

    def make(update: Any) -> Any:
        def call(self: Any, key: Any, value: Any, index: int, *args: Any, **kwargs: Any) -> Any:
            if layer in (None, index):
                old = self.layers[index] if index < len(self.layers) else None
                key, value = change(old, key, value, held(self, index))
            return update(self, key, value, index, *args, **kwargs)

        return call

    return make


def held(cache: Any, layer: int = 0) -> int:
    """How many tokens a cache holds; 0 for one that cannot say (linear attention)."""
    if cache is None:
        return 0
    try:
        return int(cache.get_seq_length(layer))
    except ValueError:
        return 0


def positions(given: dict[str, Any], past: int, new: int) -> Any:
    """The position ids of a call, as given or as the model takes them by itself, a row for each of the batch."""
    ids = given["input_ids"]
    chosen = given.get("position_ids")
    return (torch.arange(past, past + new)[None] if chosen is None else chosen).expand(ids.shape[0], new)


def padded(given: dict[str, Any]) -> bool:
    mask = given.get("attention_mask")
    return mask is not None and not bool(mask.bool().all())
