"""One tiny real model of every architecture: closed = traced, and held = its cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kvtally.core.decoder import Decoder
from kvtally.core.errors import KvtallyError
from kvtally.core.passes import Pass, cached, chunked, uncached
from kvtally.core.tally import compare
from kvtally.live.count_traced import trace
from kvtally.live.harness import as_found, as_run, build, convention, copies_kept, steps
from kvtally.live.own_caches import layers_of, states_on_modules
from kvtally.live.zoo_row import GOOD, Outcome, Row, bad, kept, unseen
from kvtally.live.zoo_shrink import shrunk
from kvtally.live.zoo_sizes import source_of
from kvtally.pure.config import FAMILIES, read_config
from kvtally.pure.config_multimodal import DECODERS
from kvtally.pure.count_closed import count

PROMPT, NEW, CHUNK = 13, 4, 5  # past every window, chunk and top-k of the tiny models
LISTS: dict[str, tuple[Pass, ...]] = {
    "uncached": uncached(PROMPT, NEW),
    "cached": cached(PROMPT, NEW),
    "chunked": chunked(PROMPT, NEW, CHUNK),
}


def names() -> tuple[str, ...]:
    """The model_type of every causal LM of the installed transformers, and of every encoder-decoder that is read."""
    from transformers.models.auto import modeling_auto

    read = FAMILIES.keys() - DECODERS.keys()  # a decoder inside another model is in the zoo as itself
    seq2seq = [name for name in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES if name in read]
    return tuple(sorted({*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *seq2seq}))


def unread() -> tuple[str, ...]:
    """Those of `names` that kvtally does not read."""
    return tuple(name for name in names() if name not in FAMILIES)


def version() -> str:
    """The version of the installed transformers."""
    import transformers

    return str(transformers.__version__)


def visit(name: str) -> Row:
    """The row of one architecture, made in this process: a tiny model is built, run, read and compared."""
    row = Row(name=name, transformers=version())
    try:
        config = shrunk(name)
    except Exception as error:
        return replace(row, built=bad(error))
    try:
        model = scaled(build(config, device="cpu"))
    except Exception as error:
        return _read(replace(row, built=bad(error.__cause__ or error)), config, source_of(name, config))[0]
    source = source_of(name, model.config)
    caches, ran = _ran(model, source)
    row, decoder = _read(replace(row, model=type(model).__name__, built=GOOD, ran=ran), model.config, source)
    if decoder is None:
        return row
    if "cached" in caches:
        row = replace(row, held=held(caches["cached"], decoder, copies_kept(model), states_on_modules(model)))
    return traced(row, model, decoder, list(caches))


def _read(row: Row, config: Any, source: int | None) -> tuple[Row, Decoder | None]:
    """The row with whether kvtally reads the config, and the decoder it makes of it."""
    try:
        decoder = read_config(config.to_dict(), where=row.name, source=source)
    except KvtallyError as error:
        return replace(row, read=Outcome(ok=False, note=_short(error.problem))), None
    return replace(row, read=GOOD, layers=len(decoder.layers)), decoder


def _short(problem: str) -> str:
    """What a refusal says, without the list of all that is known."""
    return problem.partition("; known:")[0]


def scaled(model: Any) -> Any:
    """The model with its matrices drawn anew, N(0, 1.2 / sqrt(inputs)): large enough that every token matters.

    Vectors of zeros are drawn from N(0, 0.1): as zeros they hide what they are for (a bias), and make exact ties
    (Doge's mask). Tables without gradients and other vectors stay as they are.
    """
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.requires_grad or parameter.dim() == 0:
                continue
            if parameter.dim() > 1 or not parameter.any():
                spread = 1.2 / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1
                parameter.copy_(torch.randn(parameter.shape, generator=numbers).mul_(spread))
    return model


def _ran(model: Any, source: int | None) -> tuple[dict[str, Any], Outcome]:
    """The cache that each list of passes which runs left behind, by name, and whether all of them run."""
    caches: dict[str, Any] = {}
    failed: list[str] = []
    with as_found(model):
        for name, passes in LISTS.items():
            try:
                calls = convention(model, source=source)
                if name != "uncached" and not calls.caches:
                    continue
                for step in steps(calls, passes):
                    step.run()
                    caches[name] = step.cache
            except Exception as error:
                caches.pop(name, None)
                failed.append(f"{name}: {bad(error).note}")
    note = "takes no cache" if list(caches) == ["uncached"] else ""
    return caches, Outcome(ok=False, note="; ".join(dict.fromkeys(failed))) if failed else Outcome(ok=True, note=note)


def held(cache: Any, decoder: Decoder, copies: int, apart: dict[int, int]) -> Outcome:
    """Whether the real cache's tensors have the elements that the decoder holds, layer by layer."""
    real = [n + apart.get(index, 0) for index, n in enumerate(elements(cache))]
    expected = [(copies * n, note) for n, note in kept(decoder, LISTS["cached"][-1].end)]
    real += [0] * (len(expected) - len(real))
    wrong = [
        f"layer {index}: {mine:,} against {theirs:,} in the cache"
        for index, ((mine, _), theirs) in enumerate(zip(expected, real, strict=False))
        if mine != theirs
    ]
    if len(real) > len(expected):
        wrong.append(f"{len(real)} layers in the cache, {len(expected)} read")
    notes = " and ".join(dict.fromkeys(part for _, note in expected if note for part in note.split(" and ")))
    if wrong and sorted(real) == sorted(mine for mine, _ in expected):  # layers that run again stand at the end
        return Outcome(ok=True, note=" and ".join(filter(None, (notes, "in another order"))))
    return Outcome(ok=False, note="; ".join(wrong)) if wrong else Outcome(ok=True, note=notes)


def elements(cache: Any) -> list[int]:
    """Elements of the tensors that each layer of a cache holds, both attentions of an encoder-decoder together."""
    if hasattr(cache, "cross_attention_cache"):
        both = elements(cache.self_attention_cache), elements(cache.cross_attention_cache)
        return [sum(pair) for pair in zip(*both, strict=True)]
    return [_elements(layer) for layer in layers_of(cache)]


def _elements(value: Any) -> int:
    """Elements of every tensor in a tree of objects, but counters, positions and token ids."""
    if isinstance(value, torch.Tensor):
        return value.numel() if value.dim() > 1 and value.is_floating_point() else 0
    if isinstance(value, dict):
        once = {id(held): held for held in value.values()}  # one tensor may have two names
        return sum(map(_elements, once.values()))
    return sum(map(_elements, value)) if isinstance(value, list | tuple) else 0


def traced(row: Row, model: Any, decoder: Decoder, lists: list[str]) -> Row:
    """The row with closed against traced over the lists of passes that run."""
    cells, wrong, missed, unplaced = 0, list[str](), dict[str, int](), dict[str, None]()
    if not lists:
        return row
    try:
        for name in lists:
            seen = trace(model, LISTS[name], decoder)
            closed = count(decoder, as_run(model, LISTS[name]), kernel="dense")
            comparison = compare(closed, seen)
            visible, missing = unseen(comparison.differences)
            cells += comparison.cells - sum(missing.values())
            wrong += [f"{name} {difference}" for difference in visible]
            missed = {term: missed.get(term, 0) + missing.get(term, 0) for term in {*missed, *missing}}
            unplaced |= dict.fromkeys(seen.uncounted[len(closed.uncounted) :])
    except Exception as error:
        return replace(row, traced=bad(error))
    outcome = Outcome(ok=False, note="; ".join([f"{len(wrong)} cells differ", *wrong[:8]])) if wrong else GOOD
    return replace(row, traced=outcome, cells=cells, unseen=missed, unplaced=tuple(unplaced))
