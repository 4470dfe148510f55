"""Rounding to integers with a scale a group: with a zero-point as KIVI does, or symmetric as vLLM does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvtally.live.schemes_float import LEAST_SCALE


def grouped(x: Tensor, bits: int) -> Tensor:
    """q * scale + zero for each row, with q = round((x - zero) / scale) from 0 to 2^bits - 1, ties to even.

    zero = fp16(smallest x), scale = fp16((largest - smallest) / (2^bits - 1)): two numbers of 2 bytes a row.
    The rule is KIVI's (https://arxiv.org/abs/2402.02750) and that of `QuantizedCache` in transformers with
    optimum-quanto, whose scale and zero have the type of the model. A row whose scale is 0 is all zero-point.
    """
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale = ((high - low) / (2**bits - 1)).to(torch.float16).float()
    zero = low.to(torch.float16).float()
    steps = torch.where(scale == 0, torch.zeros_like(x), (x - zero) / scale)
    return scale * steps.round().clamp(0, 2**bits - 1) + zero


def int8(x: Tensor) -> Tensor:
    """256 levels a row, from its smallest to its largest element."""
    return grouped(x, 8)


def int4(x: Tensor) -> Tensor:
    """16 levels a row, from its smallest to its largest element."""
    return grouped(x, 4)


def int2(x: Tensor) -> Tensor:
    """4 levels a row, from its smallest to its largest element."""
    return grouped(x, 2)


def int8_per_token_head(x: Tensor) -> Tensor:
    """round(x / scale) * scale with scale = max(largest |x| / 127, 1e-6), one float32 a row.

    The rule is vLLM's, in v1/attention/ops/triton_reshape_and_cache_flash.py; ties go to even. Triton stores
    a float as int8 by cutting it off; kernels that do so without rounding first lose up to twice as much.
    """
    scale = (x.abs().amax(-1, keepdim=True) / 127.0).clamp(min=LEAST_SCALE)
    return (x * (1.0 / scale)).round().clamp(-128, 127) * scale
