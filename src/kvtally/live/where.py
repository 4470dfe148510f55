"""Name the first cell of a cache that differs from those of a full pass, and what its numbers are instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kvtally.live.adapter import OPERATIONS, Adapter, Unsupported
from kvtally.live.raised import Crashed, guarded
from kvtally.live.where_patterns import POSITIONAL, Cell, Cells, Look, filled, lossy, pattern, read

ALL_RIGHT = (
    "every cell of the cache is that of a full pass that filled a fresh one: "
    "what reads the cache differs, or a full pass stores the same"
)


@dataclass(slots=True, eq=False)
class Seen:
    """A cache with what it was given: token ids and their mask, a row for each of the batch."""

    cache: Any
    make: Callable[[], Any]
    kind: str = "fresh"  # or "static", "recording"
    ids: Any = None
    mask: Any = None
    start: int = 0  # of the newest call
    older: Any = None  # token ids before the last crop or reset
    defaults: bool = True  # whether every call took the model's own positions

    def fed(self, ids: Any, mask: Any, positions: Any) -> None:
        """Notes one more call."""
        self.defaults = self.defaults and positions is None
        before = torch.zeros(ids.shape[0], 0, dtype=torch.long) if self.ids is None else self.ids
        self.start = before.shape[1]
        self.ids = torch.cat([before, ids.to(before.device)], 1)
        ones = torch.ones_like(self.ids, dtype=torch.bool)
        if mask is not None:
            ones[:, -mask.shape[1] :] = mask.bool().to(ones.device)
        elif self.mask is not None:
            ones[:, : self.start] = self.mask
        self.mask = ones

    def rows(self, rows: Any) -> None:
        """The rows that the cache should have now."""
        if self.ids is not None:
            self.ids, self.mask = self.ids[rows], self.mask[rows]
            self.older = None if self.older is None else self.older[rows]

    def cropped(self, n: int) -> None:
        """The last n tokens gone."""
        if self.ids is not None:
            keep, self.older = self.ids.shape[1] - n, self.ids
            self.ids, self.mask = self.ids[:, :keep], self.mask[:, :keep]

    def tokens(self, row: int) -> Any:
        """The token ids of one row that count, (1, n)."""
        return self.ids[row][self.mask[row]][None]


@dataclass(slots=True, eq=False)
class Watch:
    """An adapter whose caches are compared, after everything that is done to one, with full passes."""

    adapter: Adapter
    found: list[str] = field(default_factory=list)
    last: Seen | None = None

    def watched(self) -> Adapter:
        """The adapter to run a scenario with."""
        a = self.adapter
        done: dict[str, Any] = {name: self._done(name) for name in OPERATIONS if getattr(a, name) is not None}
        if a.static is not None:
            done["static"] = self._static
        if a.recording is not None:
            done["recording"] = self._recording
        if a.branch is not None:
            done["branch"] = self._branch
        return replace(a, extend=self._extend, fresh=lambda: Seen(a.fresh(), a.fresh), **done)

    def _static(self, length: int) -> Seen:
        make = self.adapter.static
        assert make is not None
        return Seen(make(length), lambda: make(length), kind="static")

    def _recording(self) -> Seen:
        make = self.adapter.recording
        assert make is not None
        return Seen(make(), make, kind="recording")

    def _branch(self, seen: Seen) -> Seen:
        copy = self.adapter.branch
        assert copy is not None
        return replace(seen, cache=copy(seen.cache))

    def _extend(self, seen: Seen, ids: Any, **given: Any) -> Any:
        logits = self.adapter.extend(seen.cache, ids, **given)
        seen.fed(ids, given.get("mask"), given.get("positions"))
        self._compare(seen, f"a call of {ids.shape[1]} on {seen.start} tokens")
        return logits

    def _done(self, name: str) -> Callable[..., Seen]:
        operation = getattr(self.adapter, name)

        def run(seen: Seen, *value: Any) -> Seen:
            other = operation(seen.cache, *value)
            seen.cache = seen.cache if other is None else other
            if name == "crop":
                seen.cropped(int(value[0]))
            elif name == "reset":
                seen.older, seen.ids, seen.mask = seen.ids, None, None
                seen.defaults = True
            elif name == "repeat" and seen.ids is not None:
                seen.rows(torch.arange(seen.ids.shape[0]).repeat_interleave(int(value[0])))
            elif name in ("reorder", "batch"):
                seen.rows(torch.as_tensor(value[0]))
            if seen.ids is not None:
                self._compare(seen, name)
            return seen

        return run

    def _compare(self, seen: Seen, after: str) -> None:
        self.last = seen
        if not self.found and self.adapter.cells is not None:
            said = differing(self.adapter, seen)
            if said:
                self.found.append(f"after {after}, {said}")


def where(adapter: Adapter, scenario: Callable[[Adapter], Iterable[Any]]) -> str:
    """Words that name the first cell of a cache that is wrong while `scenario` runs; "" where cells cannot be read.

    `scenario(adapter)` is run with an adapter of the same kind whose every cache remembers what it was given. After
    each call, crop, reorder ... each row is compared with a fresh cache that one full pass over this row's tokens
    alone has filled: layer by layer, keys, values or states, head by head, position by position. Known patterns (the
    key of another position, row, layer or head; its token rotated for another position; empty; lower precision) are
    named only where they reproduce the numbers. Run it in float64. What is not looked at: the logits.

    >>> from kvtally.live.adapter import of_transformers
    >>> from kvtally.live.harness import build
    >>> llama = dict(model_type="llama", hidden_size=8, num_attention_heads=2, num_hidden_layers=1,
    ...              intermediate_size=12, vocab_size=19)
    >>> def prompt_of_three(adapter):
    ...     yield adapter.extend(adapter.fresh(), torch.tensor([[3, 1, 4]]))
    >>> where(of_transformers(build(llama, device="cpu")), prompt_of_three) == ALL_RIGHT
    True
    """
    if adapter.cells is None:
        return ""
    watch = Watch(guarded(adapter))
    try:
        for _ in scenario(watch.watched()):
            if watch.found:
                break
    except (Unsupported, Crashed):  # which the measured run has told; what was seen before it counts
        pass
    if watch.found:
        return watch.found[0]
    if watch.last is None:
        return ""
    return lossy(read(adapter, watch.last.cache), "float64") or ALL_RIGHT


def stored_lower(adapter: Adapter, ids: Any, precision: str) -> str:
    """What a cache stores in less than `precision` although it was given float64, in words; "" where nothing.

    Looked at in a growing and in a static cache, after a prompt, one token, and the rest of `ids`. Run it in float64
    without lifted casts. Of cells that cannot be read it says so, as they may hold anything.
    """
    if adapter.cells is None:
        return "what the cache holds cannot be read"
    static, (half, end) = adapter.static, (ids.shape[1] // 2, ids.shape[1])
    makes: list[Callable[[], Any]] = [adapter.fresh, *([lambda: static(end)] if static else [])]
    for make in makes:
        try:
            cache = make()
            for start, stop in ((0, half), (half, half + 1), (half + 1, end)):
                adapter.extend(cache, ids[:, start:stop])
        except (Unsupported, Crashed):  # which the scenarios tell
            continue
        if said := lossy(read(adapter, cache), precision):
            return said
    return ""


def differing(adapter: Adapter, seen: Seen) -> str:
    """The first cell of the cache that differs, in words; "" where none does."""
    here = read(adapter, seen.cache)
    alone = [_alone(adapter, seen, row) for row in range(len(seen.ids))]
    for (layer, part), found in sorted(here.items(), key=lambda item: item[0]):
        if not any((layer, part) in cells for cells in alone):
            continue
        if found.shape[0] != len(alone):
            return f"the {part} of layer {layer} have {found.shape[0]} rows, expected {len(alone)}"
        for row, cells in enumerate(alone):
            at = {"layer": layer, "part": part, "row": row}
            if (layer, part) not in cells:
                continue
            if part in POSITIONAL:
                cell = _first(seen, at, found[row], cells[layer, part][0])
            else:
                cell = _state(at, found[row], cells[layer, part][0])
            if cell is not None:
                return _words(adapter, seen, cell, alone)
    return ""


def _alone(adapter: Adapter, seen: Seen, row: int) -> Cells:
    """The cells of one row from a full pass: over its tokens alone, or padded where that gives it its positions."""
    if not bool(seen.mask[row].any()):
        return {}
    if seen.defaults and not bool(seen.mask[row].all()):
        return filled(adapter, seen.make, seen.ids[row][None], mask=seen.mask[row][None].long())
    return filled(adapter, seen.make, seen.tokens(row))


def _state(at: dict[str, Any], found: Any, expected: Any) -> Cell | None:
    """The first part of a state that is not as expected."""
    if found.shape != expected.shape:
        return None
    wrong = _wrong(found, expected)
    if not bool(wrong.any()):
        return None
    head = int(wrong.flatten(1).any(1).nonzero()[0]) if wrong.dim() > 1 else 0
    return Cell(**at, head=head, position=None, found=found, expected=expected)


def _first(seen: Seen, at: dict[str, Any], found: Any, expected: Any) -> Cell | None:
    """The first keys or values of one row, (heads, positions, width), that are not as expected."""
    whole, count = seen.ids.shape[1], int(seen.mask[at["row"]].sum())
    if seen.kind == "static":
        found = found[:, :whole]
        expected = expected[:, : whole if seen.defaults else count]
    if seen.kind == "fresh" and count == whole and found.shape[1] != expected.shape[1]:
        return Cell(**at, head=0, position=None, found=found, expected=expected)
    held = min(found.shape[1], expected.shape[1], count)
    found, expected = found[:, found.shape[1] - held :], expected[:, expected.shape[1] - held :]
    wrong = _wrong(found, expected).any(-1)
    if not bool(wrong.any()):
        return None
    index = int(wrong.any(0).nonzero()[0])
    return Cell(
        **at,
        head=int(wrong[:, index].nonzero()[0]),
        position=count - held + index,
        found=found[:, index],
        expected=expected[:, index],
        heads=int(wrong[:, index].sum()),
        last=int(wrong.any(0).nonzero()[-1]) + count - held,
        off=count - held,
    )


def _wrong(mine: Any, theirs: Any) -> Any:
    """Where two tensors differ by more than rounding, relative to the largest expected."""
    small = 1e-6 if theirs.dtype == torch.float64 else 200 * torch.finfo(theirs.dtype).eps
    return ~((mine - theirs).abs() <= small * theirs.abs().max())


def _words(adapter: Adapter, seen: Seen, cell: Cell, alone: list[Cells]) -> str:
    positional = cell.part in POSITIONAL
    part = cell.part.rstrip("s") if cell.part.endswith(("keys", "values")) else cell.part
    place = f"the {part} of layer {cell.layer}"
    if positional and cell.position is None:
        place = f"the {cell.part} of layer {cell.layer}"
        return f"{place} stand at {cell.found.shape[1]} positions, expected {cell.expected.shape[1]}"
    place += f", head {cell.head}" if cell.heads != len(cell.found) else ""
    place += "" if cell.position is None else f", position {cell.position}"
    place += f", row {cell.row}" if len(alone) > 1 else ""
    off = (cell.found - cell.expected).abs().max().item()
    row = slice(cell.row, cell.row + 1)
    look = Look(
        adapter=adapter,
        make=seen.make,
        padded=seen.ids[row],
        mask=seen.mask[cell.row],
        older=None if seen.older is None else seen.older[row],
        start=seen.start,
        alone=alone,
    )
    said = pattern(look, cell)
    if not said and cell.layer:
        said = (
            f"every layer below is right, so what layer {cell.layer - 1} read or what layer {cell.layer} wrote is not"
        )
    return f"{place} is off by {off:.2g}" + (f": {said}" if said else "")
