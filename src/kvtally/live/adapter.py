"""A decoder as a few small functions: what a check needs of it, whatever it is written in."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kvtally.core.errors import InputError, KvtallyError
from kvtally.core.passes import LONGEST, Pass
from kvtally.live.harness import IMAGES, WHOLE_TEXT, Convention, codebooks, convention, special_tokens
from kvtally.live.own_caches import ONE_ROW, layers_of, own_cache
from kvtally.live.zoo_sizes import source_of
from kvtally.pure.config import read_config

NO_CACHE = "the model takes no cache"
OPERATIONS = ("crop", "reorder", "batch", "repeat", "reset")  # what changes a cache besides calls
MASKS = ("attention_mask", "decoder_attention_mask")
POSITIONS = ("position_ids", "decoder_position_ids")

OWN = "say how your own model is called with kvtally.live.Adapter(full=…, extend=…, fresh=…, vocab_size=…)"


class Unsupported(Exception):
    """The model or its cache refuses, or has no such operation; the text is its own message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A decoder, and a cache it goes on from, as functions over token ids of shape (batch, n).

    `full(ids)` gives the logits (batch, n, vocabulary) of a pass without a cache, `fresh()` an empty cache,
    `extend(cache, ids)` the logits of the new tokens, whose keys and values the cache then holds too. Logits are
    torch tensors or anything `torch.as_tensor` takes (a NumPy array). Where `takes` has `"mask"` or `"positions"`,
    `full` and `extend` accept those by keyword: ones over everything that counts, past included, (batch, past + n),
    and position ids (batch, n).

    The others may stay None, and the scenarios that need them are then unsupported: `crop(cache, n)` removes the last
    n tokens; `reorder(cache, rows)` puts row `rows[i]` at i; `batch(cache, rows)` keeps these rows only;
    `repeat(cache, times)` repeats each row; `reset(cache)` empties it; `branch(cache)` copies it; `static(n)` gives an
    empty cache for n tokens; `recording()` one that can be cropped although it has a window; `generate(ids, **options)`
    is that of transformers, with the decoder's ids where there is an encoder. Each may change the cache or return
    another one. `cells(cache)` gives what it holds, (layer, part, tensor) one by one. `croppable(cache)` is what the
    cache says of itself. `windows` are the sizes of sliding windows and chunks, `special` the ids that prompts must not
    have, `first` the position that the model itself gives a text's first token. `model` is the torch module behind it,
    to be run in float64, or None.
    """

    full: Callable[..., Any]
    extend: Callable[..., Any]
    fresh: Callable[[], Any]
    vocab_size: int
    crop: Callable[[Any, int], Any] | None = None
    reorder: Callable[[Any, Any], Any] | None = None
    batch: Callable[[Any, Any], Any] | None = None
    repeat: Callable[[Any, int], Any] | None = None
    reset: Callable[[Any], Any] | None = None
    branch: Callable[[Any], Any] | None = copy.deepcopy
    static: Callable[[int], Any] | None = None
    recording: Callable[[], Any] | None = None
    generate: Callable[..., Any] | None = None
    cells: Callable[[Any], Iterable[tuple[int, str, Any]]] | None = None
    croppable: Callable[[Any], bool] | None = None
    takes: frozenset[str] = frozenset()
    windows: tuple[int, ...] = ()
    special: frozenset[int] = frozenset()
    first: int = 0
    model: Any = None
    device: Any = "cpu"
    name: str = "model"


@dataclass(slots=True, eq=False)
class Held:
    """A transformers cache, how many tokens it was given, and the first of each row: not every cache can say that."""

    cache: Any
    past: int = 0
    begins: tuple[int, ...] = ()


Runner = Callable[[Held, Any, Mapping[str, Any]], Any]  # cache or none, ids, mask and positions -> logits


def of_transformers(model: Any, *, hint: str = OWN) -> Adapter:
    """The Adapter of a transformers model: its forward, its usual cache, a static one, and what caches can do.

    An InputError with this `hint` where the model is none of transformers.
    """
    config = _config(model, hint)
    decoder = config.get_text_config(decoder=True)
    source = source_of(config.model_type, config)
    calls = convention(model, source=source)
    two = bool(calls.encoded([0]).keys() - {IMAGES})
    run = _runner(model, calls, decoder)
    return Adapter(
        full=lambda ids, **given: run(Held(None, begins=_begins(ids)), ids, given),
        extend=_extender(model, run),
        fresh=lambda: Held(_cache(calls)),
        vocab_size=decoder.vocab_size,
        crop=_crop,
        reorder=_done("reorder_cache", _picked),
        batch=_done("batch_select_indices", _picked),
        repeat=_done("batch_repeat_interleave", lambda begins, n: tuple(b for b in begins for _ in range(n))),
        reset=_reset,
        static=lambda length: Held(_static(model, length, two=two, calls=calls)),
        recording=lambda: _recording(_cache(calls)),
        generate=_generator(model, calls) if hasattr(model, "generate") else None,
        cells=lambda held: cells(held.cache),
        croppable=lambda held: _croppable(held.cache),
        takes=frozenset(_keywords(model)),
        windows=_windows(model, source),
        special=frozenset(special_tokens(config, decoder)),
        first=_first_position(model),
        model=model,
        device=model.device,
        name=type(model).__name__,
    )


def _config(model: Any, hint: str) -> Any:
    """The config of a transformers model."""
    config = getattr(model, "config", None)
    if isinstance(model, torch.nn.Module) and hasattr(config, "get_text_config"):
        return config
    kind = type(model).__name__
    article = "an" if kind.startswith(tuple("AEIOU")) else "a"
    raise InputError(f"`model` is {article} {kind}, expected a transformers model", hint=hint)


def taken(adapter: Adapter, ids: Any, *, least: int) -> Any:
    """`ids` as a tensor (1, n) where they are `least` token ids of the decoder or more, a list or a row of a batch."""
    expected = f"expected {least} integers or more, of shape (n) or (1, n)"
    try:
        found = torch.as_tensor(ids)
    except Exception:  # whatever torch says of what is no tensor
        raise InputError(f"`ids` is {ids!r:.80}, {expected}") from None
    row = found[None] if found.dim() == 1 else found
    whole = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    if not whole or row.dim() != 2 or row.shape[0] != 1 or row.shape[1] < least:
        raise InputError(f"`ids` has the shape {tuple(found.shape)} and the type {found.dtype}, {expected}")
    low, high = int(row.min()), int(row.max())
    if low < 0 or high >= adapter.vocab_size:
        raise InputError(
            f"`ids` reach from {low:,} to {high:,}, expected 0 to {adapter.vocab_size - 1:,}",
            hint="were they made by the tokenizer of another model?",
        )
    return row.to(adapter.device, torch.long)


def _begins(ids: Any) -> tuple[int, ...]:
    """The first token of each row: by it an encoder's output is chosen, so that rows and prompts have their own."""
    return tuple(ids[:, 0].tolist())


def _picked(begins: tuple[int, ...], rows: Any) -> tuple[int, ...]:
    """The first tokens of these rows, in their order."""
    return tuple(begins[row] for row in rows.tolist())


def _extender(model: Any, run: Runner) -> Callable[..., Any]:
    """A function that goes on from a cache, which then holds the new tokens too."""

    def extend(held: Held, ids: Any, **given: Any) -> Any:
        if ids.shape[0] > 1 and model.config.model_type in ONE_ROW:
            raise Unsupported(f"the cache of {type(model).__name__} is made here for one sequence")
        if not held.past:
            held.begins = _begins(ids)
        logits = run(held, ids, given)
        held.past += ids.shape[1]
        return logits

    return extend


def _runner(model: Any, calls: Convention, decoder: Any) -> Runner:
    """A function that runs one call: a cache or none, ids, mask and positions."""
    rows = codebooks(decoder)
    names = _keywords(model)

    def run(held: Held, ids: Any, given: Mapping[str, Any]) -> Any:
        if decoder.model_type in WHOLE_TEXT:
            raise Unsupported(f"{type(model).__name__} is given its whole text in every call")
        more = {names[name]: value for name, value in given.items() if value is not None}
        fed = ids.repeat_interleave(rows, 0) if rows > 1 else ids
        asked = Pass(new=ids.shape[1], past=held.past, logits=ids.shape[1])
        logits = calls.call(held.cache, fed, asked, begins=held.begins, **more)
        return logits if rows == 1 else logits.unflatten(0, (-1, rows)).transpose(1, 2).flatten(2)

    return run


def _generator(model: Any, calls: Convention) -> Callable[..., Any]:
    """The generate of a model, token ids and their mask as the decoder's, and the encoder's outputs as they are."""

    def run(ids: Any, *, attention_mask: Any = None, **options: Any) -> Any:
        read = calls.encoded(_begins(ids))
        if not model.config.is_encoder_decoder:
            if read:
                raise Unsupported(f"generate of {type(model).__name__} alone makes no cache for an encoder's outputs")
            return model.generate(ids, attention_mask=attention_mask, **options)
        told = {"decoder_input_ids": ids, "decoder_attention_mask": attention_mask}
        begun = int(ids[0, 0])  # where no row begins with it, generate puts it before each
        return model.generate(**told, **read, decoder_start_token_id=begun, **options)

    return run


def _keywords(model: Any) -> dict[str, str]:
    """What this model's forward calls a mask and positions, where it has them."""
    takes = inspect.signature(model.forward).parameters
    kind = int(bool(model.config.is_encoder_decoder))
    found = {"mask": MASKS[kind], "positions": POSITIONS[kind]}
    return {name: keyword for name, keyword in found.items() if keyword in takes}


def _first_position(model: Any) -> int:
    """Where the model's own positions begin: in a table that has a row for padding (RoBERTa's), behind that row."""
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    padding = next((row for row in (getattr(table, "padding_idx", None) for table in tables) if row is not None), -1)
    return int(padding) + 1


def _windows(model: Any, source: int | None) -> tuple[int, ...]:
    """How many tokens each kind of layer holds at most, where it is bounded; none of a config that is not read."""
    try:
        layers = read_config(model.config.to_dict(), where=type(model).__name__, source=source).layers
    except KvtallyError:
        return ()
    held = {layer.mixer.tokens_held(LONGEST) for layer in layers if layer.mixer is not None}
    return tuple(sorted(n for n in held if 1 < n < LONGEST))


def _cache(calls: Convention) -> Any:
    if not calls.caches:
        raise Unsupported(NO_CACHE)
    return calls.fresh()


def _static(model: Any, length: int, *, two: bool, calls: Convention) -> Any:
    from transformers import DynamicCache, EncoderDecoderCache, StaticCache

    if not calls.caches:
        raise Unsupported(NO_CACHE)
    if own_cache(model):
        raise Unsupported(f"{type(model).__name__} brings a cache of its own, and no static one")
    static = StaticCache(config=model.config.get_text_config(decoder=True), max_cache_len=length)
    return EncoderDecoderCache(static, DynamicCache()) if two else static


def _recording(cache: Any) -> Held:
    _operation(cache, "activate_past_recording")()
    return Held(cache)


def _done(operation: str, moved: Callable[[tuple[int, ...], Any], tuple[int, ...]]) -> Callable[[Held, Any], None]:
    """An operation of the cache's own on its rows, by name, and what it does to them."""

    def run(held: Held, value: Any) -> None:
        _operation(held.cache, operation)(value)
        held.begins = moved(held.begins, value)

    return run


def _operation(cache: Any, name: str) -> Callable[..., Any]:
    """That method of a cache; not every class of caches has it."""
    found: Callable[..., Any] | None = getattr(cache, name, None)
    if found is None:
        raise Unsupported(f"{type(cache).__name__} has no `{name}`")
    return found


def _crop(held: Held, n: int) -> None:
    _operation(held.cache, "crop")(-n)
    held.past -= n


def _croppable(cache: Any) -> bool:
    """Whether a transformers cache says that a crop can put it back as it was."""
    both = (cache.self_attention_cache, cache.cross_attention_cache) if hasattr(cache, "is_updated") else (cache,)
    return all(one.is_croppable for one in both if len(one.layers))


def _reset(held: Held) -> None:
    _operation(held.cache, "reset")()
    held.past = 0


def cells(cache: Any) -> Iterator[tuple[int, str, Any]]:
    """Every float tensor that a transformers cache holds, as (layer, part, tensor), both attentions of two."""
    if hasattr(cache, "cross_attention_cache"):
        yield from cells(cache.self_attention_cache)
        for layer, part, tensor in cells(cache.cross_attention_cache):
            yield layer, f"cross {part}", tensor
        return
    for layer, tree in enumerate(layers_of(cache)):
        for part, tensor in _named(tree, ""):
            yield layer, part, tensor


def _named(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The float tensors of a tree with where they stand: `keys`, `conv_states[0]`."""
    if isinstance(tree, torch.Tensor):
        if tree.is_floating_point() and tree.dim() > 1:
            yield name, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _named(value, f"{name}[{key}]" if name else str(key))
    elif isinstance(tree, list | tuple):
        for key, value in enumerate(tree):
            yield from _named(value, f"{name}[{key}]")
