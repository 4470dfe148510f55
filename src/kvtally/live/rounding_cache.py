"""A cache that keeps K and V less exactly: any transformers cache, rounded as it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kvtally.core.errors import InputError, require_int
from kvtally.live.schemes import Scheme, rounded, scheme

Watch = Callable[[str, int, int, Any, Any], None]  # part, layer, first position, what was given, what is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How each part of a cache is kept: K, V and recurrent states, each by a scheme, or None for exactly.

    `residual` is how many of the newest tokens stay exact at most.
    """

    k: Scheme | None = None
    v: Scheme | None = None
    state: Scheme | None = None
    residual: int = 0

    def of(self, part: str) -> Scheme | None:
        """The scheme of a part: `k`, `v`, `cross k`, `cross v` or `state`."""
        return {"k": self.k, "v": self.v, "state": self.state}[part.rpartition(" ")[2]]

    def block(self, part: str) -> int:
        """Tokens that are rounded together once all are there; 0 where each is rounded as it is written.

        >>> Kept(k=scheme("int4", group=32, axis="channel"), v=scheme("int4")).block("k")
        32
        """
        how = self.of(part)
        if how is None:
            return 0
        return self.residual or (group_of(how) if how.axis == "channel" else 0)

    @property
    def blocks(self) -> int:
        """The longest call in which every token reads what it would read if it came alone; 0: any length."""
        return max(self.block("k"), self.block("v"))


def group_of(how: Scheme) -> int:
    """Tokens in a group of a scheme by channel."""
    if not isinstance(how.group, int):
        raise InputError(
            f"`group` is {how.group!r} with `axis` `channel`, expected a number of tokens",
            hint="group=32, for instance",
        )
    return how.group


def kept(
    dtype: str | None = None,
    *,
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    group: int | str | None = None,
    axis: str = "token",
    residual: int = 0,
) -> Kept:
    """How a cache of `dtype` is kept; `k_dtype` and `v_dtype` say it of one alone, and the other is then exact.

    By channel (`axis`) is for K: V goes by token, as in KIVI, since each token's V is weighed as a whole. `residual`
    has to hold whole groups of tokens. A type whose format fixes its groups takes neither `group` nor `axis`.

    >>> kept("int8", v_dtype="int4").v.name, kept(k_dtype="int8").v
    ('int4', None)
    """
    names = {"k_dtype": k_dtype or dtype, "v_dtype": v_dtype or dtype}
    if not any((*names.values(), state_dtype)):
        raise InputError("no type is given, expected one of `dtype`, `k_dtype`, `v_dtype` and `state_dtype`")
    require_int("residual", residual, least=0)
    by_channel = {} if axis == "token" else {"axis": axis}
    k, v = (_scheme(names["k_dtype"], group, by_channel), _scheme(names["v_dtype"], group, {}))
    if k is None and by_channel:
        raise InputError(
            f"`axis` is {axis!r} and K is exact, expected a type for K", hint="only K is rounded by channel"
        )
    if k is not None and k.axis == "channel" and residual % group_of(k):
        raise InputError(
            f"`residual` is {residual} and K is rounded in groups of {group_of(k)} tokens, expected whole groups",
            hint=f"residual={-(-residual // group_of(k)) * group_of(k)}",
        )
    return Kept(k=k, v=v, state=scheme(state_dtype) if state_dtype else None, residual=residual)


def _scheme(name: str | None, group: int | str | None, how: dict[str, str]) -> Scheme | None:
    return None if name is None else scheme(name, group=group, **how)


class RoundingCache:
    """A transformers cache that rounds K and V as they are written, of the same class as the one it is made from.

    `RoundingCache(DynamicCache(), dtype="int4")` is a DynamicCache; give it to a model or to its `generate`. The cache
    handed over is used up: what it holds belongs to the new one. The other arguments are those of `kept`. What is
    written is what is read: a call attends to its own tokens as rounded, too.

    With `residual` N tokens are rounded N at a time, once a call comes after a full N of them, as KIVI does, so
    that the newest 1 to N are exact; by channel that is so for each group of tokens. A prompt given in one
    call is then read exactly by itself, and rounded before the next call. Cross attention's K and V are written once,
    and rounded at once, but for tokens that fill no group. Recurrent states are rounded only with
    `state_dtype`, as often as they are written: once a call. Index keys and inputs of a convolution stay exact.

    >>> from transformers import DynamicCache
    >>> cache = RoundingCache(DynamicCache(), dtype="fp8_e5m2")
    >>> keys, _ = cache.update(torch.full((1, 1, 1, 2), 1.1), torch.ones(1, 1, 1, 2), 0)
    >>> keys.tolist(), isinstance(cache, DynamicCache)  # e5m2 has 1, 1.25, 1.5 …
    ([[[[1.0, 1.0]]]], True)
    """

    _how: Kept
    _watch: Watch | None
    _cross: str
    _done: dict[tuple[int, str], int]  # tokens rounded so far, by layer and part
    layers: Any

    def __new__(cls, cache: Any = None, *, how: Kept | None = None, watch: Watch | None = None, **given: Any) -> Any:
        if cache is None:  # what `copy.deepcopy` asks for: it fills in what the copy holds
            return object.__new__(cls)
        how = kept(**given) if how is None else how
        return _wrapped(cache, how, watch, "")

    def __init__(self, *_args: Any, **_given: Any) -> None:
        """Nothing: `__new__` has taken over what the other cache holds."""

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """As that of the cache's own class, K and V rounded."""
        past = self._complete(layer_idx)
        keys = self._written("k", layer_idx, past, key_states)
        same = value_states is key_states  # DeepSeek-V4: one tensor for both
        values = keys if same else self._written("v", layer_idx, past, value_states)
        return super().update(keys, values, layer_idx, *args, **kwargs)  # type: ignore[misc]

    def update_recurrent_state(self, recurrent_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """As that of the cache's own class, the state rounded where `state_dtype` says so."""
        if self._how.state is not None:
            recurrent_states = self._rounded("state", layer_idx, 0, recurrent_states)
        return super().update_recurrent_state(recurrent_states, layer_idx, *args, **kwargs)  # type: ignore[misc]

    def _written(self, part: str, layer: int, past: int, new: Any) -> Any:
        """What is stored of new keys or values at once: rounded, unless they wait for their block."""
        how, block = self._how.of(part), self._how.block(part)
        if how is None or (block and not self._cross):
            return new
        if how.axis == "channel":
            whole = new.shape[-2] // group_of(how) * group_of(how)
            return torch.cat([self._rounded(part, layer, past, new[..., :whole, :]), new[..., whole:, :]], -2)
        return self._rounded(part, layer, past, new)

    def _complete(self, index: int) -> int:
        """Rounds the blocks of one layer that are full and not rounded yet; tokens the layer has seen before."""
        layer: Any = self.layers[index] if index < len(self.layers) else None
        if getattr(layer, "keys", None) is None:
            return 0
        past = int(layer.get_seq_length())
        for part, held in (("k", layer.keys), ("v", layer.values)):
            block = 0 if self._cross else self._how.block(part)
            if block:
                full = past // block * block
                done = min(self._done.get((index, part), 0), full)
                self._done[index, part] = full
                self._round_held(part, index, held, past, (done, full))
        return past

    def _round_held(self, part: str, layer: int, held: Any, past: int, span: tuple[int, int]) -> None:
        """Rounds positions `span` of a tensor that holds the last tokens of `past`, in place."""
        dropped = past - min(past, held.shape[-2])  # tokens that have left a window
        how, (start, end) = self._how.of(part), span
        if how is not None and how.axis == "channel" and start < min(end, dropped):
            raise InputError(
                f"layer {layer} keeps {held.shape[-2]:,} tokens and K is rounded in groups of {group_of(how)} tokens, "
                "expected groups that fit its window",
                hint=f"ask for groups of {held.shape[-2]} tokens or fewer",
            )
        start = max(start, dropped)
        if start < end:
            with torch.no_grad():
                place = held[..., start - dropped : end - dropped, :]
                place.copy_(self._rounded(part, layer, start, place.clone()))

    def _rounded(self, part: str, layer: int, start: int, x: Any) -> Any:
        how = self._how.of(part)
        if how is None or not x.shape[-2]:
            return x
        result = rounded(how, x.float()).to(x.dtype)
        if self._watch is not None:
            self._watch(self._cross + part, layer, start, x, result)
        return result


def _wrapped(cache: Any, how: Kept, watch: Watch | None, cross: str) -> Any:
    """`cache` as a RoundingCache; of two caches each."""
    if not hasattr(cache, "update"):
        raise InputError(
            f"the cache is a {type(cache).__name__}, which has no `update` for K and V, expected a transformers cache"
        )
    kind = type(f"Rounding{type(cache).__name__}", (RoundingCache, type(cache)), {})
    made: Any = object.__new__(kind)
    vars(made).update(vars(cache), _how=how, _watch=watch, _cross=cross, _done={})
    if hasattr(cache, "cross_attention_cache"):
        made.self_attention_cache = _wrapped(cache.self_attention_cache, how, watch, "")
        made.cross_attention_cache = _wrapped(cache.cross_attention_cache, how, watch, "cross ")
    return made
