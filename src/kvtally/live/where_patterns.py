"""What the numbers of a wrong cell are instead: known patterns, each named only where it reproduces them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kvtally.live.adapter import Adapter

POSITIONAL = ("keys", "values", "indexer_keys")  # (batch, heads, positions, width); all others are states
AHEAD = 2  # positions past the end that a token is tried at
BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}  # of mantissa, the leading one included
Cells = dict[tuple[int, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A wrong cell: the numbers of all heads at one position, (heads, width); of a whole state where that is None."""

    layer: int
    part: str
    row: int
    head: int
    position: int | None
    found: Any
    expected: Any
    heads: int = 1  # how many heads are wrong there
    last: int = 0  # the last wrong position
    off: int = 0  # the position of the first one held


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A wrong cell with what there is to compare it with.

    `make()` gives an empty cache, `padded` are the token ids of the cell's row, (1, n), with their mask (n), `older`
    those that were there before the last crop or reset, or None. The newest call brought those from `start` on, and
    `alone` holds for each row the cells of a fresh cache that a full pass has filled.
    """

    adapter: Adapter
    make: Callable[[], Any]
    padded: Any
    mask: Any
    older: Any
    start: int
    alone: list[Cells]

    @property
    def tokens(self) -> Any:
        """The token ids that count, (1, n)."""
        return self.padded[:, self.mask]


def pattern(look: Look, cell: Cell) -> str:
    """What `cell` holds instead, in words; "" where no pattern gives its numbers."""
    right = look.alone[cell.row]
    if not bool(cell.found.any()):
        return "it is empty (missing entry)"
    if cell.position is None:
        return _row(cell, look.alone) or _layer(cell, right) or _older(look, cell)
    return (
        _head(cell)
        or _position(cell, right)
        or _row(cell, look.alone)
        or _layer(cell, right)
        or _older(look, cell)
        or _rotated(look, cell)
        or _precision(cell)
        or _padding(look, cell)
        or _unattended(look, cell)
    )


def read(adapter: Adapter, cache: Any) -> Cells:
    """Every cell of a cache by layer and part; keys and values as (batch, heads, positions, width)."""
    assert adapter.cells is not None
    found = {}
    for layer, part, numbers in adapter.cells(cache):
        tensor = torch.as_tensor(numbers)
        if tensor.numel():
            found[layer, part] = tensor[:, None] if tensor.dim() == 3 and part in POSITIONAL else tensor
    return found


def filled(adapter: Adapter, make: Callable[[], Any], ids: Any, **given: Any) -> Cells:
    """The cells of a fresh cache after one full pass over `ids`."""
    cache = make()
    adapter.extend(cache, ids, **given)
    return {key: tensor.clone() for key, tensor in read(adapter, cache).items()}


def same(a: Any, b: Any) -> bool:
    """Whether two tensors agree but for rounding."""
    small = 1e-7 if b.dtype == torch.float64 else 100 * torch.finfo(b.dtype).eps
    return a.shape == b.shape and bool(((a - b).abs() <= small * b.abs().max()).all())


def _at(cells: Cells, cell: Cell, position: int, *, layer: int | None = None, part: str | None = None) -> Any:
    """The numbers that a fresh cache holds at a position, (heads, width), or None where it holds none."""
    tensor = cells.get((cell.layer if layer is None else layer, part or cell.part))
    if tensor is None:
        return None
    if cell.position is None:
        return tensor[0]
    index = position - cell.off
    return tensor[0][:, index] if 0 <= index < tensor.shape[2] else None


def _head(cell: Cell) -> str:
    heads = len(cell.expected)
    for other in range(heads):
        if other != cell.head and same(cell.found[cell.head], cell.expected[other]):
            return f"it equals that of head {other} (heads swapped)"
    return ""


def _position(cell: Cell, right: Cells) -> str:
    assert cell.position is not None
    for back in (1, -1, *range(2, cell.position + 1), *range(-2, -40, -1)):
        other = _at(right, cell, cell.position - back)
        if other is not None and same(cell.found, other):
            kind = "stale entry" if back == 1 and cell.last == cell.position else "shifted position"
            return f"it equals that of position {cell.position - back} ({kind})"
    return ""


def _row(cell: Cell, alone: list[Cells]) -> str:
    for row, cells in enumerate(alone):
        if row == cell.row:
            continue
        tensor = cells.get((cell.layer, cell.part))
        if tensor is None:
            continue
        whole = tensor[0]
        columns = [whole] if cell.position is None else whole.unbind(1)
        if any(same(cell.found, column) for column in columns):
            return f"it equals that of row {row} (rows swapped)"
    return ""


def _layer(cell: Cell, right: Cells) -> str:
    for layer, part in right:
        if (layer, part) == (cell.layer, cell.part):
            continue
        other = _at(right, cell, cell.position or 0, layer=layer, part=part)
        if other is not None and same(cell.found, other):
            return f"it equals the {part} of layer {layer} (wrong {'layer' if layer != cell.layer else 'part'})"
    return ""


def _rotated(look: Look, cell: Cell) -> str:
    """Layer 0 depends on the token and its position alone: the token again and again gives it at every position."""
    if cell.layer or cell.position is None:
        return ""
    token, count = look.tokens[:, cell.position : cell.position + 1], look.padded.shape[1] + AHEAD
    cells = filled(look.adapter, look.adapter.recording or look.adapter.fresh, token.expand(1, count))
    tensor = cells.get((cell.layer, cell.part))
    if tensor is None:
        return ""
    first = count - tensor.shape[2]
    for index in range(tensor.shape[2]):
        if same(cell.found, tensor[0][:, index]):
            return f"it equals that of its token at position {first + index}" + _shift(first + index, look, cell)
    return ""


def _shift(at: int, look: Look, cell: Cell) -> str:
    assert cell.position is not None
    padding, start = int((~look.mask).sum()), look.start
    if padding and at == cell.position + padding:
        return " (its slot: the padding is counted)"
    start -= padding
    if start and at == cell.position - start and at < cell.position - 1:
        return " (positions restart in this call)"
    return f" (shifted position: {abs(at - cell.position)} too {'high' if at > cell.position else 'low'})"


def rounded(numbers: Any, bits: int) -> Any:
    """`numbers` with as many bits of mantissa, by arithmetic: a cast may be lifted.

    >>> rounded(torch.tensor([1 + 2**-7, 1 + 2**-9]), 8).tolist()
    [1.0078125, 1.0]
    """
    mantissa, exponent = torch.frexp(numbers)
    return torch.ldexp((mantissa * 2**bits).round(), exponent - bits)


def _precision(cell: Cell) -> str:
    for kind, bits in BITS.items():
        if bool(cell.found.eq(rounded(cell.expected, bits)).all()):
            return f"it is what {kind} keeps of it (lower precision)"
    return ""


def lossy(cells: Cells, precision: str) -> str:
    """The first part of a cache that holds no more than a type below its own and `precision` could; "" if none is.

    Keys and values position by position, as one call may store less than another; a state as a whole.
    """
    for (layer, part), tensor in sorted(cells.items(), key=lambda item: item[0]):
        full = min(BITS.get(str(tensor.dtype).removeprefix("torch."), 0), BITS.get(precision, 0))
        lower = {kind: bits for kind, bits in BITS.items() if bits < full}
        if not lower:
            continue
        places = tensor.movedim(2, 0).flatten(1) if part in POSITIONAL else tensor.flatten()[None]
        held = places[places.any(1)]
        for kind, bits in lower.items():
            if bool(held.eq(rounded(held, bits)).all(1).any()):
                return f"the {part} of layer {layer} hold no more than {kind} does (lower precision)"
    return ""


def _older(look: Look, cell: Cell) -> str:
    """Whether a cell is one of the text that was there before the last crop or reset."""
    if look.older is None:
        return ""
    cells = filled(look.adapter, look.adapter.fresh, look.older)
    tensor = cells.get((cell.layer, cell.part))
    if tensor is None:
        return ""
    if cell.position is None:
        return "it is still that of the text before (not rolled back)" if same(cell.found, tensor[0]) else ""
    first = look.older.shape[1] - tensor.shape[2]
    for index in range(tensor.shape[2]):
        if same(cell.found, tensor[0][:, index]):
            return f"it equals that of position {first + index} of the text before (stale entry)"
    return ""


def _unattended(look: Look, cell: Cell) -> str:
    """Whether earlier positions left out of a full pass give the numbers: one of them, or all up to one.

    Exact in layer 1, as layer 0 stores what a mask does not touch.
    """
    if cell.layer != 1 or not cell.position or not {"mask", "positions"} <= look.adapter.takes:
        return ""
    places = torch.arange(look.tokens.shape[1])[None]
    for first, last in (*((k, k) for k in range(cell.position)), *((0, k) for k in range(1, cell.position))):
        mask = torch.ones_like(look.tokens)
        mask[0, first : last + 1] = 0
        cells = filled(look.adapter, look.make, look.tokens, mask=mask, positions=places)
        other = _at(cells, cell, cell.position)
        if other is not None and same(cell.found, other):
            which = f"position {last} was" if first == last else f"positions {first} to {last} were"
            return f"{which} not attended to" + (" (missing entry)" if first == last else " (missing entries)")
    return ""


def _padding(look: Look, cell: Cell) -> str:
    """Whether a full pass that attends to the padding gives the numbers."""
    if bool(look.mask.all()) or not {"mask", "positions"} <= look.adapter.takes:
        return ""
    places = (look.mask.long().cumsum(0) - 1).clamp(min=0)[None]
    cells = filled(look.adapter, look.make, look.padded, mask=torch.ones_like(look.padded), positions=places)
    tensor = cells.get((cell.layer, cell.part))
    if tensor is None or cell.position is None:
        return ""
    index = int((~look.mask).sum()) + cell.position
    reproduced = index < tensor.shape[2] and same(cell.found, tensor[0][:, index])
    return "the padding was attended to" if reproduced else ""
