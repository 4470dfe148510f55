"""Which layer of the decoder runs: where a model runs its layers in loops, they are counted as they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvtally.live.names import layer_number


@dataclass(slots=True, kw_only=True)
class Order:
    """Which layer runs in this pass: `running` is its index, None between layers; `begun` how many have begun.

    A model that has as many layers as its decoder names them by their numbers. One that has fewer runs
    some of them again, and each run is a layer of the decoder: the n-th to begin is layer n.
    """

    looped: bool = False
    running: int | None = None
    begun: int = 0

    @property
    def again(self) -> bool:
        """Whether a layer that begins now is not the first of this pass, in a model that loops."""
        return self.looped and self.begun > 1

    def restart(self) -> None:
        """A new pass begins."""
        self.running, self.begun = None, 0

    def layer_of(self, named: int | None) -> int | None:
        """The layer for which a module works whose name says `named`: one that is shared works for all of them."""
        return named if named is None or self.running is None else self.running

    def cached(self, named: int) -> int:
        """The layer whose cache is updated: in a loop the one that runs, whatever its place in the cache."""
        return self.running if self.looped and self.running is not None else named


def running_order(model: Any, layers: int, parts: int) -> tuple[Order, list[Any]]:
    """The order of a model's layers for a decoder of so many, and the hooks that keep it.

    Layers that are made of several `parts` keep the numbers that their modules have.
    """
    numbered = [(n, module) for name, module in model.named_modules() if (n := layer_number(name)) is not None]
    order = Order(looped=layers > parts * (1 + max((n for n, _ in numbered), default=-1)))
    if parts > 1:
        return order, []
    hooks = []
    for number, module in numbered:
        enter, leave = _steps(order, number)
        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    return order, hooks


def _steps(order: Order, number: int) -> tuple[Callable[..., None], Callable[..., None]]:
    def enter(_module: Any, _args: Any) -> None:
        order.running = order.begun if order.looped else number
        order.begun += 1

    def leave(_module: Any, _args: Any, _out: Any) -> None:
        order.running = None

    return enter, leave
