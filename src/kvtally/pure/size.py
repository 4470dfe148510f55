"""Bytes held, bytes reserved, how many fit, how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype, dtype
from kvtally.core.errors import InputError, require_int
from kvtally.core.footprint import Footprint, Place
from kvtally.core.holding import Holding, holdings
from kvtally.core.passes import LONGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTypes:
    """The element type of every part of a cache: K and latents, V, index keys, convolution inputs, states."""

    k: Dtype
    v: Dtype
    index: Dtype
    conv: Dtype
    state: Dtype

    def of(self, holding: Holding) -> Dtype:
        """The type that the rows of `holding` have."""
        apart = {"index": self.index, "conv": self.conv, "state": self.state}
        return apart.get(holding.part) or (self.v if holding.values else self.k)

    def to_dict(self) -> dict[str, str]:
        return {f"{name}_dtype": str(getattr(self, name)) for name in self.__slots__}


def cache_types(
    name: str = "bf16", *, k_dtype: str | None = None, v_dtype: str | None = None, state_dtype: str | None = None
) -> CacheTypes:
    """The types of a cache of `name`, K and V apart where they are given.

    Index keys have the type of K. States are float32 unless `state_dtype` says otherwise, inputs of a
    convolution have the type of K where that is exact, else bf16: engines quantise neither.

    >>> cache_types("q8_0", v_dtype="q4_0").to_dict()["conv_dtype"]
    'bf16'
    """
    k = dtype(name if k_dtype is None else k_dtype, what="dtype" if k_dtype is None else "k_dtype")
    v = dtype(name if v_dtype is None else v_dtype, what="dtype" if v_dtype is None else "v_dtype")
    state = dtype(state_dtype or "fp32", what="state_dtype")
    if not state.exact:
        raise InputError(f"`state_dtype` is `{state}`, expected `fp32`, `bf16` or `fp16`: states are not quantised")
    return CacheTypes(k=k, v=v, index=k, conv=k if k.exact else dtype("bf16"), state=state)


def size(
    decoder: Decoder,
    tokens: int,
    *,
    batch: int = 1,
    dtype: str = "bf16",
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    tensor_parallel: int = 1,
) -> Footprint:
    """Bytes that attention needs of `batch` sequences of `tokens` tokens, on one of `tensor_parallel` devices.

    A layer holds tokens * heads * bytes(head_dim) for K and for V, tokens limited by its window; a latent
    layer tokens * bytes(latent); a recurrent one its state. Raises InputError for a type that is not known
    or whose blocks do not fit a head, and for heads that do not divide.
    Not counted: weights, activations, and whatever an engine reserves beyond need.

    >>> from kvtally.core.decoder import lesson
    >>> size(lesson(), 100).bytes_held  # 2 * 100 * 64 * 2
    25600
    """
    require_int("tokens", tokens, least=0, most=LONGEST)
    require_int("batch", batch, least=1, most=LONGEST)
    types = cache_types(dtype, k_dtype=k_dtype, v_dtype=v_dtype, state_dtype=state_dtype)
    layers = holdings(decoder, tensor_parallel=tensor_parallel)
    held: dict[Place, int] = {}
    made: dict[int, dict[str, int]] = {}
    for index, kept in enumerate(layers):
        if id(kept) not in made:
            made[id(kept)] = _parts(kept, types, tokens, batch)
        for part, n in made[id(kept)].items():
            held[index, part] = n
    return Footprint(
        tokens=tokens,
        batch=batch,
        held=held,
        conventions={**types.to_dict(), "tensor_parallel": tensor_parallel},
    )


def _parts(kept: tuple[Holding, ...], types: CacheTypes, tokens: int, batch: int) -> dict[str, int]:
    parts: dict[str, int] = {}
    for holding in kept:
        rows = batch * holding.tokens(tokens) * holding.heads
        parts[holding.part] = parts.get(holding.part, 0) + types.of(holding).bytes(rows, holding.width)
    return parts


Bytes = Callable[[int, int], int]  # of a number of tokens and a batch


def held_bytes(decoder: Decoder, types: CacheTypes, *, tensor_parallel: int = 1) -> Bytes:
    """A function of tokens and batch that gives `size(...).bytes_held`, quick to ask again and again.

    >>> from kvtally.core.decoder import lesson
    >>> held_bytes(lesson(), cache_types())(100, 3)  # 3 * 2 * 100 * 64 * 2
    76800
    """
    weights: dict[int, tuple[Holding, int]] = {}
    for kept in holdings(decoder, tensor_parallel=tensor_parallel):
        for holding in kept:
            more = types.of(holding).bytes(holding.heads, holding.width)
            weights[id(holding)] = (holding, weights.get(id(holding), (holding, 0))[1] + more)
    rows = tuple(weights.values())
    return lambda tokens, batch: batch * sum(each * holding.tokens(tokens) for holding, each in rows)


def fits(needed: Bytes, memory: int, tokens: int, *, near: int = 1) -> int:
    """How many requests of `tokens` tokens fit in `memory` bytes; `needed(tokens, batch)` are bytes they take.

    Found by bisection, as bytes need not grow in proportion: one more does not fit. `near` is where the search
    starts; the answer does not depend on it.

    >>> from kvtally.core.decoder import lesson
    >>> fits(lambda tokens, batch: size(lesson(), tokens, batch=batch).bytes_held, 100_000, 100)  # 25,600 each
    3
    """
    require_int("memory", memory, least=0)
    require_int("tokens", tokens, least=1, most=LONGEST)
    return _most(lambda batch: needed(tokens, batch), memory, near)


def longest(needed: Bytes, memory: int, batch: int = 1, *, near: int = 1) -> int:
    """The most tokens of which `batch` requests fit in `memory` bytes; LONGEST where nothing limits them.

    0 where not even one token fits. `near` is where the search starts.

    >>> from kvtally.core.decoder import lesson
    >>> longest(lambda tokens, batch: size(lesson(), tokens, batch=batch).bytes_held, 100_000)  # 256 a token
    390
    """
    require_int("memory", memory, least=0)
    require_int("batch", batch, least=1, most=LONGEST)
    return _most(lambda tokens: needed(tokens, batch), memory, near)


def _most(needed: Callable[[int], int], memory: int, near: int) -> int:
    """The largest n of at most LONGEST whose bytes are at most `memory`; 0 if there is none.

    `needed` must not fall as n grows. From `near` in doubled steps to where it turns, then by bisection.
    """
    low, high, step = 0, LONGEST + 1, 1
    probe = min(max(near, 1), LONGEST)
    while low < probe < high:
        if needed(probe) <= memory:
            low, probe = probe, probe + step
        else:
            high, probe = probe, probe - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) <= memory else (low, middle)
    return low
