"""What a scenario is: a way to use a cache, run beside passes that use none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kvtally.core.errors import InputError
from kvtally.live.adapter import Adapter, Unsupported

SILENT_CROP = "the cache says `is_croppable` is False, and yet `crop` returned without complaint"
OTHERS = 7919  # how far the next prompt's tokens are from those of one before


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Logits of the same tokens, made without a cache (`left`) and with one (`right`), both (batch, n, vocabulary).

    `position` is that of the first of the n.
    """

    position: int
    left: Any
    right: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A decoder with the prompts to run on it; passes without a cache are made once for each prompt."""

    adapter: Adapter
    tokens: int
    seed: int = 0
    ids: Any = None
    passes: dict[bytes, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what a scenario has to say besides its pairs

    def prompt(self, which: int = 0) -> Any:
        """Token ids (1, tokens): the given ones for 0, and others that share no position with them.

        Drawn without repetition as long as the vocabulary reaches: equal tokens make exact ties in a first layer.
        """
        if which == 0 and self.ids is not None:
            return self.ids
        usual = torch.tensor(sorted(set(range(self.adapter.vocab_size)) - self.adapter.special))
        if not len(usual):
            raise InputError(f"`vocab_size` is {self.adapter.vocab_size} and every token is special")
        numbers = torch.Generator().manual_seed(self.seed)
        count = len(usual)
        times = -(-self.tokens // count)
        order = torch.cat([torch.randperm(count, generator=numbers) for _ in range(times)])[: self.tokens]
        if which and count > 1:
            order = order + 1 + OTHERS * which % (count - 1)
        return usual[order % count][None].to(self.adapter.device)

    def rows(self, count: int, first: int = 0) -> Any:
        """Token ids (count, tokens), every row another prompt."""
        return torch.cat([self.prompt(which) for which in range(first, first + count)])

    def full(self, ids: Any) -> Any:
        """Logits of a pass without a cache, made once."""
        key = repr(tuple(ids.shape)).encode() + ids.cpu().numpy().tobytes()
        if key not in self.passes:
            self.passes[key] = self.again(ids)
        return self.passes[key]

    def first(self, *texts: Any) -> None:
        """Makes the passes without a cache now, before a cache lives: none then runs between two of its calls."""
        for ids in texts:
            self.full(ids)

    def again(self, ids: Any, **given: Any) -> Any:
        """Logits of a pass without a cache, made now."""
        return torch.as_tensor(self.adapter.full(ids, **given))

    def extend(self, cache: Any, ids: Any, **given: Any) -> Any:
        """Logits of the new tokens, which the cache holds from then on."""
        return torch.as_tensor(self.adapter.extend(cache, ids, **given))

    def need(self, operation: str) -> Callable[..., Any]:
        """That function of the adapter; Unsupported where it has none."""
        found: Callable[..., Any] | None = getattr(self.adapter, operation)
        if found is None:
            raise Unsupported(f"{self.adapter.name} has no `{operation}`")
        return found

    def apply(self, operation: str, cache: Any, *values: Any) -> Any:
        """The cache after an operation: the one it returns, or the same one changed."""
        changed = self.need(operation)(cache, *values)
        return cache if changed is None else changed

    def crop(self, cache: Any, n: int) -> Any:
        """The cache without its last n tokens; noted where it says of itself that this cannot be done."""
        cropped, says = self.apply("crop", cache, n), self.adapter.croppable
        if says is not None and not says(cropped):
            self.notes.append(SILENT_CROP)
        return cropped

    def takes(self, *names: str) -> None:
        """Nothing where mask or positions can be given; otherwise Unsupported."""
        missing = [name for name in names if name not in self.adapter.takes]
        if missing:
            raise Unsupported(f"{self.adapter.name} takes no {' and no '.join(missing)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A way to use a cache: `run(bench)` yields pairs, one after the other, as they are made."""

    name: str
    group: str
    run: Callable[[Bench], Iterator[Pair]]


def cut(sizes: Iterable[int], total: int) -> list[int]:
    """The first of `sizes` that fill `total`, the last one shortened; ones where they do not reach.

    >>> cut([5, 1, 7], 8), cut([2], 4)
    ([5, 1, 2], [2, 1, 1])
    """
    found: list[int] = []
    for size in sizes:
        if sum(found) < total:
            found.append(min(size, total - sum(found)))
    return found + [1] * (total - sum(found))


def untold(_start: int, _end: int) -> Mapping[str, Any]:
    """What a call is told that gets its tokens only."""
    return {}


def follow(
    bench: Bench,
    cache: Any,
    ids: Any,
    sizes: Iterable[int],
    *,
    start: int = 0,
    given: Callable[[int, int], Mapping[str, Any]] = untold,
) -> Iterator[Pair]:
    """Extends `cache`, which holds `ids[:, :start]`, by calls of `sizes` tokens, each beside the full pass.

    `given(start, end)` is what a call over those positions is told by keyword.
    """
    bench.first(ids)
    for size in sizes:
        end = start + size
        right = bench.extend(cache, ids[:, start:end], **given(start, end))
        left = bench.full(ids)[:, start:end]
        yield Pair(position=start, left=left, right=right)
        start = end
