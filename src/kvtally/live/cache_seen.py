"""What a cache is handed and gives back while a pass runs, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Pair = tuple[int, int]  # elements written and read
FURTHER = frozenset({"update_indexer", "update_index", "update_compressor_states"})  # of a layer: keys beside K and V
Moved = Callable[[int, Pair, Pair], None]  # layer, keys, values


def watch_updates(cache: Any, moved: Moved) -> dict[int, Pair]:
    """Let `cache.update` tell what it was handed and gave back; elements read of keys and values, by layer."""
    update = cache.update
    read: dict[int, Pair] = {}

    def watched(keys: Any, values: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        all_keys, all_values = update(keys, values, layer, *args, **kwargs)
        same = keys is values  # DeepSeek-V4: one tensor for both, handed over once
        k, v = keys.numel(), 0 if same else values.numel()
        read[layer] = (all_keys.numel() - k, 0 if same else all_values.numel() - v)
        moved(layer, (k, read[layer][0]), (v, read[layer][1]))
        return all_keys, all_values

    cache.update = watched
    for number, layer in enumerate(getattr(cache, "layers", ())):
        for name in FURTHER & set(dir(layer)):
            setattr(layer, name, _watched(getattr(layer, name), number, moved))
    return read


def unwatch(cache: Any) -> None:
    """The cache's own methods again."""
    del cache.update
    for layer in getattr(cache, "layers", ()):
        for name in FURTHER & vars(layer).keys():
            delattr(layer, name)


def read_unwritten(cross: Any, written: Iterable[int], scored: Iterable[int], moved: Moved) -> None:
    """K and V of the encoder's output that cross attention scored in this pass without making them anew."""
    for index in sorted(set(scored) - set(written)):
        held = cross.layers[index]
        moved(index, (0, held.keys.numel()), (0, held.values.numel()))


def read_shared(donors: dict[int, int], read: dict[int, Pair], scored: Iterable[int], moved: Moved) -> None:
    """K and V that layers without any of their own scored in this pass: those their donors were given back."""
    for index in sorted(set(scored) & set(donors)):
        keys, values = read.get(donors[index], (0, 0))
        moved(index, (0, keys), (0, values))


def _watched(update: Callable[..., Any], layer: int, moved: Moved) -> Callable[..., Any]:
    """`update`, whose last argument are new keys, telling what it was handed and what it gave back."""

    def watched(*args: Any) -> Any:
        all_keys, new = update(*args), args[-1].numel()
        moved(layer, (new, all_keys.numel() - new), (0, 0))
        return all_keys

    return watched
