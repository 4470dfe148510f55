"""Exact cache against a rounded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from kvtally.core.agreement import Agreement
from kvtally.core.errors import InputError, require_int
from kvtally.core.rounded import Rounded, Stretch
from kvtally.live.adapter import Adapter, Held, Unsupported, of_transformers, taken
from kvtally.live.float64 import converted
from kvtally.live.harness import CODEBOOKS, as_found
from kvtally.live.raised import Crashed, guarded
from kvtally.live.rounding_bytes import bytes_of
from kvtally.live.rounding_cache import Kept, RoundingCache, kept
from kvtally.live.rounding_error import OUTLIER, Errors
from kvtally.live.rounding_figures import Figures, exact
from kvtally.live.verdict import SCREEN

LOGITS = 2**24  # logits of a call: 128 MiB in float64
LONGEST_CALL = 256
STRETCHES = 16
TOLERANCE = SCREEN[0]  # what `check` takes for rounding in float32, whatever noise it measures


@dataclass(slots=True, eq=False)
class Run:
    """A rounded pass on its way: how its cache is kept, the cache, and what has been measured so far."""

    how: Kept
    held: Held
    errors: Errors
    figures: Figures = field(default_factory=Figures)


def round_cache(
    model: Any,
    ids: Any,
    *,
    dtype: str | None = None,
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    group: int | str | None = None,
    axis: str = "token",
    residual: int = 0,
    chunk: int | None = None,
    make_cache: Callable[[], Any] | None = None,
) -> Rounded:
    """The output of `model` with K and V rounded to `dtype` as they are written, against that with an exact cache.

    Teacher-forced on the token ids `ids` (1, n), `chunk` tokens a call (None: as many as keep the logits of a
    call small), both passes call by call, so that memory is that of two caches and a call. Each pass goes through a
    cache: what is written is what is read, and a token attends to its own K and V as rounded, whatever the chunk.
    Where tokens wait for a group or for `residual` to fill, no call goes past such a block: every token
    reads what it would read if it came alone. All else is float32: weights of 16 bits are widened first, and
    the model is left as it was found. The types are those of `kept`; `make_cache` makes an empty
    transformers cache of another class than the model's usual one. An encoder's output is random numbers.

    Differences are of logits, KL divergences in nats, errors relative. Not told: what sampling makes of it.

    >>> from kvtally.live.harness import build
    >>> llama = dict(model_type="llama", hidden_size=8, num_attention_heads=2, num_hidden_layers=1,
    ...              intermediate_size=12, vocab_size=19)
    >>> same = round_cache(build(llama, device="cpu"), [1, 2, 3, 4], dtype="float32")
    >>> same.agreement.verdict, same.max_abs, same.part("k"), same.times
    ('same', 0.0, 0.0, Fraction(1, 2))
    """
    how = kept(
        dtype, k_dtype=k_dtype, v_dtype=v_dtype, state_dtype=state_dtype, group=group, axis=axis, residual=residual
    )
    return round_caches(model, ids, [how], chunk=chunk, make_cache=make_cache)[0]


def round_caches(
    model: Any,
    ids: Any,
    ways: Sequence[Kept],
    *,
    chunk: int | None = None,
    make_cache: Callable[[], Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Rounded, ...]:
    """`round_cache` for several ways to keep a cache at once: one exact pass, and one for each of `ways`.

    `progress` is told how many tokens of how many every pass has seen.
    """
    adapter = roundable(model)
    ids = taken(adapter, ids, least=2)
    size = _call(adapter, chunk)
    with as_found(model), converted(model, torch.float32), _refusals(adapter):
        left = Held(_fresh(adapter, make_cache))
        runs = [_begun(how, _fresh(adapter, make_cache)) for how in ways]
        total = ids.shape[1]
        for start in range(0, total, size):
            end = min(start + size, total)
            side = exact(start, adapter.extend(left, ids[:, start:end])[0], ids[0, start + 1 : end + 1])
            for run in runs:
                run.figures.add(side, _called(adapter, run, ids, (start, end)))
            if progress is not None:
                progress(end, total)
    return tuple(_told(adapter, run, total, size) for run in runs)


def roundable(model: Any) -> Adapter:
    """The Adapter of a transformers model whose cache can be rounded; an InputError for what is none."""
    hint = "what a cache of your own keeps, you can round yourself: kvtally.live.schemes.rounded"
    adapter = of_transformers(model, hint=hint)
    if model.config.get_text_config(decoder=True).model_type in CODEBOOKS:
        raise InputError(f"{type(model).__name__} reads a row of ids for each codebook, expected a single text")
    return guarded(adapter)


def key_widths(adapter: Adapter, ids: Any) -> frozenset[int]:
    """How many elements the rows of K have that a cache is given, cross attention's too: read off a first token."""
    found: set[int] = set()

    def watch(part: str, _layer: int, _start: int, _given: Any, kept_: Any) -> None:
        if part.endswith("k"):
            found.add(kept_.shape[-1])

    with as_found(adapter.model), _refusals(adapter):
        held = Held(RoundingCache(adapter.fresh().cache, how=kept(k_dtype="float32"), watch=watch))
        adapter.extend(held, ids[:, :1])
    return frozenset(found)


def _call(adapter: Adapter, chunk: int | None) -> int:
    """Tokens of a call."""
    if chunk is not None:
        return require_int("chunk", chunk, least=1)
    return max(1, min(LONGEST_CALL, LOGITS // adapter.vocab_size))


@contextmanager
def _refusals(adapter: Adapter) -> Iterator[None]:
    """What a model cannot do, as an error of the question."""
    try:
        yield
    except (Unsupported, Crashed) as refusal:
        raise InputError(f"{adapter.name}: {refusal}, expected one whose cache can be rounded") from refusal


def _fresh(adapter: Adapter, make_cache: Callable[[], Any] | None) -> Any:
    return make_cache() if make_cache is not None else adapter.fresh().cache


def _begun(how: Kept, cache: Any) -> Run:
    errors = Errors()
    return Run(how=how, held=Held(RoundingCache(cache, how=how, watch=errors.watch)), errors=errors)


def _called(adapter: Adapter, run: Run, ids: Any, span: tuple[int, int]) -> Any:
    """Rounded logits (rows, vocabulary) of the positions of `span`, in calls that stay within a block."""
    (start, end), block = span, run.how.blocks
    cuts = [*range(start - start % block + block, end, block), end] if block else [end]
    found = []
    for cut in cuts:
        found.append(adapter.extend(run.held, ids[:, start:cut])[0])
        start = cut
    return torch.cat(found)


def _told(adapter: Adapter, run: Run, total: int, size: int) -> Rounded:
    """The record of one finished pass."""
    figures, errors, how = run.figures, run.errors, run.how
    if not errors.given and not how.blocks:
        raise InputError(
            f"nothing was rounded: the cache of {adapter.name} was given no K and V, expected attention",
            hint="recurrent states are rounded with state_dtype, in caches that keep them in `recurrent_states`",
        )
    many, channels = errors.channels()
    sizes, uncounted = bytes_of(adapter.model, how, total)
    return Rounded(
        name=adapter.name,
        k="exact" if how.k is None else str(how.k),
        v="exact" if how.v is None else str(how.v),
        agreement=_agreement(figures, how, size),
        tokens=total,
        mean_abs=figures.total_abs / figures.logits,
        kl_mean=sum(figures.kl) / total,
        kl_95=figures.percentile(0.95),
        kl_99_9=figures.percentile(0.999),
        top1=sum(s.token_left == s.token_right for s in figures.steps) / total,
        perplexity_exact=figures.perplexity(figures.nll_exact),
        perplexity=figures.perplexity(figures.nll),
        stored=errors.stored(),
        channels=channels,
        stretches=_stretches(run, total),
        bytes_exact=sizes and sizes[0],
        bytes_kept=sizes and sizes[1],
        conventions={
            "tokens": total,
            "call": f"{size} tokens" + (f", rounded {how.blocks} at a time" if how.blocks else ""),
            "residual": how.residual,
            "states": "exact" if how.state is None else f"{how.state}, once a call",
            "tolerance": f"{TOLERANCE:g} of the largest logit",
            "outlying channels of K": f"{many} above {OUTLIER:g} times the median of their head",
            "bytes": uncounted or "of this text; exact: 2 bytes an element, states 4",
            "torch": str(torch.__version__),
        },
    )


def _agreement(figures: Figures, how: Kept, size: int) -> Agreement:
    error = figures.largest / figures.scale if figures.scale else figures.largest
    verdict = "same" if figures.same else "rounding" if error <= TOLERANCE else "LOSSY"
    return Agreement(
        scenario=f"calls of {size}, K {how.k or 'exact'}, V {how.v or 'exact'}",
        group="steps",
        verdict=verdict,
        error=error,
        scale=figures.scale,
        native=error,
        threshold=TOLERANCE,
        precision="float32",
        rule="all bits are equal" if figures.same else f"{TOLERANCE:g} of the largest logit is taken for rounding",
        steps=tuple(figures.steps),
    )


def _stretches(run: Run, total: int) -> tuple[Stretch, ...]:
    """The text in STRETCHES parts, or as many as it has tokens."""
    parts = min(STRETCHES, total)
    edges = [total * k // parts for k in range(parts + 1)]
    return tuple(
        Stretch(
            start=start,
            k=run.errors.between("k", start, end),
            v=run.errors.between("v", start, end),
            max_abs=max(s.max_abs for s in run.figures.steps[start:end]),
        )
        for start, end in pairwise(edges)
    )
