"""True float64: a model's numbers in float64, and every cast to a lower float type lifted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LOWER = (torch.float32, torch.float16, torch.bfloat16)
FLOATS = (*LOWER, torch.float64)
CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
BITS = (torch.Tensor.view, torch.finfo)  # here a dtype says how bits are read
GROUPED = ("grouped_mm", "_grouped_mm")
LOWEST = torch.finfo(torch.float32).min / 2  # masked: the lowest number of a float type, to which a score may be added
NUDGE = 1e-7  # above all rounding of float64, below every threshold


@dataclass(slots=True, eq=False)
class Choices:
    """What top-k choices were seen: the smallest gap between the last chosen and the first not, of their size.

    With `nudged` an item with a higher index is made a little larger first, so that exact ties fall alike in every run.
    """

    nudged: bool = False
    margin: float = math.inf

    def choose(self, func: Any, values: Any, k: int, *args: Any, **kwargs: Any) -> Any:
        """What `func`, a top-k, gives."""
        dim = args[0] if args else kwargs.get("dim", -1)
        if k < values.shape[dim] and values.numel() and values.is_floating_point():
            best = func(values, k + 1, dim).values
            last, other = best.select(dim, k - 1), best.select(dim, k)
            there = _counts(last) & _counts(other)
            size = values[_counts(values)].abs().max() if there.any() else 1.0
            if there.any() and size:
                self.margin = min(self.margin, float(((last - other)[there] / size).min()))
            elif there.any():
                self.margin = 0.0
        if not self.nudged:
            return func(values, k, *args, **kwargs)
        found = func(values + _slope(values, dim), k, *args, **kwargs)
        return type(found)((values.gather(dim, found.indices), found.indices))


def _counts(values: Any) -> Any:
    """Where a score is one: not infinite, and not the lowest number of a float type, which masks are made of."""
    return values.isfinite() & (values > LOWEST)


def _slope(values: Any, dim: int) -> Any:
    """A little more for each higher index along `dim`, on the scale of the values."""
    finite = values[_counts(values)]
    size = finite.abs().max().clamp(min=1e-3) if finite.numel() else torch.ones((), device=values.device)
    shape = [1] * values.dim()
    shape[dim] = -1
    return size * NUDGE * torch.arange(values.shape[dim], device=values.device, dtype=values.dtype).view(shape)


class Lifted(TorchFunctionMode):  # type: ignore[misc]
    """Makes every function that is asked for a lower float type give float64 instead; watches top-k choices."""

    def __init__(self, lift: bool, choices: Choices | None) -> None:
        super().__init__()
        self.lift, self.choices = lift, choices

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "topk" and self.choices is not None:
            return self.choices.choose(func, *args, **kwargs)
        if name in GROUPED and args[0].dtype == torch.float64:
            return _grouped(*args, **kwargs)
        if not self.lift or func in BITS:
            return func(*args, **kwargs)
        if func in CASTS:
            return args[0].double()
        if any(value.__class__ is torch.dtype for value in args):  # rare: most calls must stay cheap
            args = tuple(map(_lifted, args))
        return func(*args, **{key: _lifted(value) for key, value in kwargs.items()} if kwargs else kwargs)


def _grouped(rows: Any, weights: Any, *, offs: Any, bias: Any = None, **_: Any) -> Any:
    """Rows times the matrix of their group, which no kernel has in float64; rows of no group are 0."""
    if bias is not None:
        raise NotImplementedError("grouped_mm with a bias has no float64 form here")
    ends = offs.tolist()
    parts = [rows[start:end] @ w for start, end, w in zip([0, *ends], ends, weights, strict=False)]
    rest = rows.new_zeros(rows.shape[0] - (ends[-1] if ends else 0), weights.shape[-1])
    return torch.cat([*parts, rest])


def _lifted(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in LOWER else value


@contextmanager
def float64(model: Any = None, *, lift: bool = True, choices: Choices | None = None) -> Iterator[None]:
    """Inside, every float number of `model` (a torch module, or None) is float64; afterwards the very same tensors.

    Parameters, buffers and tensors kept as plain attributes are converted, the default dtype is float64, and with
    `lift` explicit casts to a lower float type give float64. Constants that were built in a lower type keep
    the value they were rounded to. `choices` watches top-k choices.

    >>> with float64():
    ...     torch.ones(2).float().softmax(0, dtype=torch.float32).dtype
    torch.float64
    """
    with converted(model, torch.float64), Lifted(lift, choices):
        yield


@contextmanager
def converted(model: Any, dtype: Any) -> Iterator[None]:
    """Inside, the float numbers of `model` and the default dtype are of `dtype`; afterwards the very same tensors."""
    default = torch.get_default_dtype()
    undo: list[Callable[[], None]] = []
    try:
        if model is not None:
            _convert(model, dtype, undo)
        torch.set_default_dtype(dtype)
        yield
    finally:
        torch.set_default_dtype(default)
        for again in reversed(undo):
            again()


def _convert(model: Any, dtype: Any, undo: list[Callable[[], None]]) -> None:
    """Converts tensor by tensor; what puts each back is added to `undo`."""
    seen: set[int] = set()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen and parameter.dtype in FLOATS:
                undo.append(_restorer(parameter, parameter.data, parameter.grad))
                parameter.grad = None
                parameter.data = parameter.data.to(dtype)
            seen.add(id(parameter))
        for table in (module._buffers, vars(module)):
            for name, value in list(table.items()):
                if isinstance(value, torch.Tensor) and value.dtype in FLOATS:
                    undo.append(_putter(table, name, value))
                    table[name] = value.to(dtype)


def _restorer(parameter: Any, data: Any, grad: Any) -> Callable[[], None]:
    def again() -> None:
        parameter.data = data
        parameter.grad = grad

    return again


def _putter(table: Any, name: str, value: Any) -> Callable[[], None]:
    def again() -> None:
        table[name] = value

    return again
