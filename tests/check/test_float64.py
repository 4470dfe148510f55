"""True float64: casts are lifted, choices are watched, and everything is put back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvtally.live.float64 import Choices, converted, float64

LOW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = [
    lambda x: x.float(),
    lambda x: x.half(),
    lambda x: x.bfloat16(),
    lambda x: x.to(torch.float32),
    lambda x: x.to("cpu", torch.bfloat16),
    lambda x: x.to(dtype=torch.float16),
    lambda x: x.type(torch.float32),
    lambda x: x.softmax(-1, dtype=torch.float32),
    lambda x: torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32),
    lambda x: x.cumsum(0, dtype=torch.float32),
    lambda x: torch.arange(3, dtype=torch.float32),
    lambda x: torch.zeros_like(x, dtype=torch.bfloat16),
    lambda x: torch.tensor([1, 2]).float(),
    lambda x: torch.ones(2),
]


@pytest.mark.parametrize("cast", CASTS)
def test_no_cast_to_a_lower_float_type_is_left(cast: Any) -> None:
    with float64():
        assert cast(torch.rand(3, 2)).dtype == torch.float64
    assert cast(torch.rand(3, 2)).dtype in LOW


def test_integers_bits_and_limits_stay() -> None:
    with float64():
        assert torch.ones(2).long().dtype == torch.int64
        assert torch.ones(2).view(torch.int64).dtype == torch.int64
        assert torch.finfo(torch.float32).bits == 32
        assert (torch.ones(2) > 0).dtype == torch.bool


def test_without_lifting_only_the_numbers_are_float64() -> None:
    with float64(lift=False):
        assert torch.ones(2).dtype == torch.float64
        assert torch.ones(2).float().dtype == torch.float32


class Net(torch.nn.Module):
    """Tied weights, a buffer that is not saved, and a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 5), torch.nn.Linear(3, 5)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.rand(4), persistent=False)
        self.plain, self.count = torch.rand(2), torch.arange(3)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("fails", [False, True])
def test_the_very_same_tensors_come_back(dtype: Any, fails: bool) -> None:
    net = Net().to(dtype)
    net.first.weight.grad = torch.ones_like(net.first.weight)
    kept = [net.first.weight.data_ptr(), net.table, net.plain, net.first.weight.grad]
    try:
        with float64(net):
            assert {t.dtype for t in (*net.parameters(), net.table, net.plain)} == {torch.float64}
            assert net.second.weight is net.first.weight
            assert net.count.dtype == torch.int64
            if fails:
                raise RuntimeError("inside")
    except RuntimeError:
        assert fails
    now = [net.first.weight.data_ptr(), net.table, net.plain, net.first.weight.grad]
    assert now[0] == kept[0]
    assert all(a is b for a, b in zip(now[1:], kept[1:], strict=True))
    assert net.first.weight.dtype == dtype
    assert torch.get_default_dtype() == torch.float32
    assert torch.ones(2).half().dtype == torch.float16


def test_converted_to_another_type() -> None:
    net = Net()
    with converted(net, torch.bfloat16):
        assert net.first(torch.ones(2, 3)).dtype == torch.bfloat16
    assert net.first.weight.dtype == torch.float32


def test_experts_are_multiplied_in_groups() -> None:
    numbers = torch.Generator().manual_seed(1)
    rows = torch.randn(7, 3, generator=numbers, dtype=torch.float64)
    weights = torch.randn(3, 3, 5, generator=numbers, dtype=torch.float64)
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    with float64():
        found = torch.nn.functional.grouped_mm(rows, weights, offs=ends)
    parts = [rows[:2] @ weights[0], rows[2:6] @ weights[2], torch.zeros(1, 5, dtype=torch.float64)]
    assert torch.equal(found, torch.cat(parts))


def test_the_gap_of_a_choice_is_its_margin() -> None:
    choices = Choices()
    with float64(choices=choices):
        torch.tensor([[1.0, 4.0, 3.0, 2.5]]).topk(2)
    assert choices.margin == pytest.approx(0.5 / 4, rel=1e-12)  # float64: one subtraction, one division


def test_an_exact_tie_has_no_margin_and_falls_to_the_higher_index_once_nudged() -> None:
    scores, choices = torch.tensor([[1.0, 2.0, 1.0, 1.0]]), Choices(nudged=True)
    with float64(choices=choices):
        values, indices = scores.double().topk(2)
    assert choices.margin == 0
    assert indices.tolist() == [[1, 3]]
    assert values.tolist() == [[2.0, 1.0]]  # the scores themselves, not the nudged ones


MASKED = (-torch.inf, torch.finfo(torch.float64).min, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("masked", MASKED)
def test_masked_scores_are_no_tie(masked: float) -> None:
    choices = Choices()
    with float64(choices=choices):
        torch.tensor([[1.0, masked, masked]], dtype=torch.float64).topk(2)
    assert choices.margin == torch.inf


@pytest.mark.parametrize("masked", MASKED)
def test_a_masked_score_does_not_make_the_nudge_larger(masked: float) -> None:
    scores, choices = torch.tensor([[1.0, 1.5, 1.0, masked]], dtype=torch.float64), Choices(nudged=True)
    with float64(choices=choices):
        indices = scores.topk(2).indices
    assert indices.tolist() == [[1, 2]]  # the largest, then the higher of two equals


def test_all_items_chosen_is_no_choice() -> None:
    choices = Choices()
    with float64(choices=choices):
        torch.tensor([[1.0, 1.0]]).topk(2)
    assert choices.margin == torch.inf
