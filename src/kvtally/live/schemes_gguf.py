"""Rounding to the block formats of llama.cpp: 32 elements share a scale, and some a minimum."""

from __future__ import annotations

import torch
from torch import Tensor


def q8_0(x: Tensor) -> Tensor:
    """round(x / d) * fp16(d) with d = largest |x| / 127, half away from zero; `quantize_row_q8_0_ref` of ggml."""
    d = x.abs().amax(-1, keepdim=True) / 127
    steps = x * _inverse(d)
    size, below = steps.abs(), steps.abs().trunc()
    return _whole((below + (size - below >= 0.5)) * steps.sign()) * _fp16(d)


def q4_0(x: Tensor) -> Tensor:
    """16 levels around 0, the element farthest from it exactly at -8 or 8 steps of d; `quantize_row_q4_0_ref`."""
    return _around_zero(x, 8)


def q5_0(x: Tensor) -> Tensor:
    """32 levels around 0, the element farthest from it exactly at 16 steps of d; `quantize_row_q5_0_ref`."""
    return _around_zero(x, 16)


def q4_1(x: Tensor) -> Tensor:
    """16 levels from the smallest element to the largest; `quantize_row_q4_1_ref`."""
    return _from_smallest(x, 15)


def q5_1(x: Tensor) -> Tensor:
    """32 levels from the smallest element to the largest; `quantize_row_q5_1_ref`."""
    return _from_smallest(x, 31)


def _around_zero(x: Tensor, half: int) -> Tensor:
    """(q - half) * fp16(d), q from 0 to 2 * half - 1; d = m / -half, m the first element of largest |x|."""
    d = x.gather(-1, x.abs().argmax(-1, keepdim=True)) / -half
    steps = _whole(x * _inverse(d) + (half + 0.5))
    return (steps.clamp(0, 2 * half - 1) - half) * _fp16(d)


def _from_smallest(x: Tensor, most: int) -> Tensor:
    """q * fp16(d) + fp16(smallest), q from 0 to `most`; d = (largest - smallest) / most."""
    low, high = x.aminmax(dim=-1, keepdim=True)
    d = (high - low) / most
    steps = _whole((x - low) * _inverse(d) + 0.5)
    return steps.clamp(0, most) * _fp16(d) + _fp16(low)


def _inverse(d: Tensor) -> Tensor:
    """1 / d, and 0 for 0."""
    return torch.where(d == 0, torch.zeros_like(d), 1.0 / d)


def _fp16(d: Tensor) -> Tensor:
    """`d` as it is stored: a scale or minimum takes 2 bytes."""
    return d.to(torch.float16).float()


def _whole(steps: Tensor) -> Tensor:
    """Cut off towards zero. Where 1 / d overflows, what C makes of it is undefined, and times d stored it is 0."""
    return steps.trunc().nan_to_num(0.0) + 0.0
