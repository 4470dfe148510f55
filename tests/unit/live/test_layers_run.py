"""Which layer runs: by its number, or in loops by when it begins."""

from __future__ import annotations

import torch

from kvtally.live.layers_run import Order, running_order


class Looped(torch.nn.Module):
    """Two layers, the second run twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in (0, 1, 1):
            x = self.layers[index](x)
        return x


def run(layers: int) -> tuple[Order, list[int | None]]:
    """What runs while each layer does, as a hook of the layer itself sees it."""
    found: list[int | None] = []
    model = Looped()
    order, hooks = running_order(model, layers, 1)
    for layer in model.layers:
        hooks.append(layer.register_forward_pre_hook(lambda *_: found.append(order.running)))
    model(torch.zeros(1, 3))
    for hook in hooks:
        hook.remove()
    return order, found


def test_a_layer_that_runs_again_is_a_layer_of_its_own() -> None:
    order, found = run(layers=3)
    assert (order.looped, found) == (True, [0, 1, 2])
    assert order.again
    order.restart()
    assert (order.running, order.again) == (None, False)


def test_layers_are_numbered_by_their_names_where_none_runs_again() -> None:
    order, found = run(layers=2)
    assert (order.looped, found) == (False, [0, 1, 1])


def test_a_shared_module_works_for_the_layer_that_runs() -> None:
    order = Order(running=5)
    assert (order.layer_of(2), order.layer_of(None), order.cached(2)) == (5, None, 2)
    assert Order(looped=True, running=5).cached(2) == 5
    assert Order().layer_of(2) == 2


def test_layers_of_several_parts_keep_their_numbers() -> None:
    order, hooks = running_order(Looped(), 4, 2)
    assert (order.looped, hooks) == (False, [])
