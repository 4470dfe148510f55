"""Which operators are products, and how many multiplications each makes: by hand, on sizes that all differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import conv1d, conv_transpose1d, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from kvtally.live.products import kind


class Recorder(TorchDispatchMode):
    """The products of a piece of code: their roles, and their MACs in all."""

    def __init__(self) -> None:
        super().__init__()
        self.roles: list[str] = []
        self.macs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if found := kind(func):
            macs = found.macs(args, out)
            self.roles.append(found.role)
            self.macs += sum(macs) if isinstance(macs, tuple) else macs
        return out


def t(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


OFFSETS = torch.tensor([4, 4, 12], dtype=torch.int32)

CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "mm": (lambda: t(2, 3) @ t(3, 5), 2 * 3 * 5),
    "mm into a buffer": (lambda: torch.mm(t(2, 3), t(3, 5), out=t(2, 5)), 2 * 3 * 5),
    "addmm": (lambda: torch.addmm(t(5), t(2, 3), t(3, 5)), 2 * 3 * 5),
    "bmm": (lambda: t(7, 2, 3) @ t(7, 3, 5), 7 * 2 * 3 * 5),
    "matmul that broadcasts": (lambda: t(4, 1, 2, 3) @ t(7, 3, 5), 4 * 7 * 2 * 3 * 5),
    "baddbmm": (lambda: torch.baddbmm(t(7, 2, 5), t(7, 2, 3), t(7, 3, 5)), 7 * 2 * 3 * 5),
    "addbmm": (lambda: torch.addbmm(t(2, 5), t(7, 2, 3), t(7, 3, 5)), 7 * 2 * 3 * 5),
    "einsum": (lambda: torch.einsum("bik,bjk->bij", t(7, 2, 3), t(7, 5, 3)), 7 * 2 * 3 * 5),
    "linear with bias": (lambda: torch.nn.functional.linear(t(4, 2, 3), t(5, 3), t(5)), 4 * 2 * 3 * 5),
    "matrix by vector": (lambda: t(2, 3) @ t(3), 2 * 3),
    "addmv": (lambda: torch.addmv(t(2), t(2, 3), t(3)), 2 * 3),
    "dot": (lambda: t(3) @ t(3), 3),
    "convolution": (lambda: conv1d(t(1, 4, 11), t(6, 4, 3)), 6 * 9 * 4 * 3),
    "depthwise convolution": (lambda: conv1d(t(1, 4, 11), t(4, 1, 3), groups=4, padding=2), 4 * 13 * 3),
    "transposed convolution": (lambda: conv_transpose1d(t(1, 4, 11), t(4, 6, 3)), 4 * 11 * 6 * 3),
    # Twelve rows sorted by group: 4 of the first, none of the second, 8 of the third.
    "grouped rows": (lambda: torch._grouped_mm(t(12, 4), t(3, 4, 8), offs=OFFSETS), 12 * 4 * 8),
    "grouped columns": (lambda: torch._grouped_mm(t(3, 8, 4), t(4, 12), offs=OFFSETS), 8 * 4 * 12),
    "grouped inside": (lambda: torch._grouped_mm(t(8, 12), t(12, 4), offs=OFFSETS), 8 * 12 * 4),
}


@pytest.mark.parametrize("name", CASES)
def test_macs_by_hand(name: str) -> None:
    code, macs = CASES[name]
    with Recorder() as seen:
        code()
    assert seen.roles in (["product"], ["convolution"])
    assert seen.macs == macs


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("value", [4, 5])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
def test_attention_however_it_is_dispatched(device: str, value: int, causal: bool, kv_heads: int) -> None:
    """Six query heads, 7 rows by 7 keys: one operator, or two products around a softmax; masked or not."""
    with torch.no_grad(), torch.device(device), Recorder() as seen:
        scaled_dot_product_attention(
            t(1, 6, 7, 4), t(1, kv_heads, 7, 4), t(1, kv_heads, 7, value), is_causal=causal, enable_gqa=True
        )
    assert seen.macs == 6 * 7 * 7 * (4 + value)
    assert set(seen.roles) <= {"attention", "product", "softmax"}
    assert seen.roles in (["attention"], ["product", "softmax", "product"])


def test_what_looks_like_a_product_and_has_no_formula_is_unknown() -> None:
    with Recorder() as seen:
        torch.cdist(t(2, 3), t(5, 3))
    assert "unknown" in seen.roles

    @torch.library.custom_op("kvtally_test::anything", mutates_args=())
    def anything(x: torch.Tensor) -> torch.Tensor:
        return x @ x.T

    with Recorder() as seen:
        anything(t(2, 3))
    assert seen.roles == ["unknown"]  # nobody can see what is inside


def test_everything_else_is_nothing() -> None:
    with Recorder() as seen:
        x = t(2, 3)
        (x * x + x).sum().item()
        torch.nn.functional.layer_norm(x, (3,))
        torch.nn.functional.embedding(torch.tensor([0, 1]), x)
        torch.cat([x, x]).to(torch.int64).sort()
        torch.nn.functional.interpolate(t(1, 1, 4), scale_factor=2)
    assert seen.roles == []
