"""Rounding to floating-point formats: 16 bits, 8 bits, and 4 bits with a scale for every 16 elements."""

from __future__ import annotations

import torch
from torch import Tensor

E4M3_MOST, E5M2_MOST, E2M1_MOST = 448.0, 57344.0, 6.0
LEAST_SCALE = 1e-6  # vLLM's floor of a scale a token and head
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BETWEEN = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # halfway: a tie goes to the even code, 0, 1, 2, 4


def same(x: Tensor) -> Tensor:
    """`x` itself: float32 is what the cache is compared with."""
    return x


def bf16(x: Tensor) -> Tensor:
    """The nearest bfloat16, ties to even, as float32: PyTorch's cast."""
    return x.to(torch.bfloat16).float()


def fp16(x: Tensor) -> Tensor:
    """The nearest float16, ties to even, as float32: PyTorch's cast. From 65,520 on it is infinite."""
    return x.to(torch.float16).float()


def fp8_e4m3(x: Tensor) -> Tensor:
    """The nearest float8_e4m3fn, ties to even, as float32; beyond ±448 it is ±448, and NaN stays NaN.

    Engines saturate (CUDA's `__NV_SATFINITE`); whether a bare PyTorch cast does depends on its version, so
    the range is cut first. The scale is 1, which engines take where a checkpoint brings no other.
    """
    return x.clamp(-E4M3_MOST, E4M3_MOST).to(torch.float8_e4m3fn).float()


def fp8_e5m2(x: Tensor) -> Tensor:
    """The nearest float8_e5m2, ties to even, as float32; beyond ±57,344 it is ±57,344, and NaN stays NaN.

    Engines saturate; a bare PyTorch cast gives infinities. The scale is 1.
    """
    return x.clamp(-E5M2_MOST, E5M2_MOST).to(torch.float8_e5m2).float()


def fp8_per_token_head(x: Tensor) -> Tensor:
    """fp8_e4m3 of x / scale, times scale = max(largest |x| / 448, 1e-6), one float32 a row.

    The rule is vLLM's, in v1/attention/ops/triton_reshape_and_cache_flash.py.
    """
    scale = (x.abs().amax(-1, keepdim=True) / E4M3_MOST).clamp(min=LEAST_SCALE)
    return fp8_e4m3(x * (1.0 / scale)) * scale


def e2m1(x: Tensor) -> Tensor:
    """The nearest of ±0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even code, as float32; beyond ±6 it is ±6."""
    levels = torch.tensor(E2M1, device=x.device)
    edges = torch.tensor(BETWEEN, device=x.device)
    size = x.abs()
    below = torch.bucketize(size, edges)  # edges strictly below: a tie stays with the lower code
    above = torch.bucketize(size, edges, right=True)  # edges at or below: a tie goes to the upper one
    return torch.copysign(levels[torch.where(below % 2 == 0, below, above)], x)


def nvfp4(x: Tensor) -> Tensor:
    """4-bit floats with one fp8 scale for each row of 16: e2m1(x / scale) * scale.

    scale = e4m3(largest |x| / 6). The float32 scale of the whole tensor, which a calibrated checkpoint may
    bring, is 1. Rows whose scale is 0 read back as zeros; beyond 448 * 6 elements saturate. Division is by
    the float32 reciprocal, as in the reference of vLLM's tests (`ref_nvfp4_quant`); its CUDA kernels divide
    by approximate reciprocals.
    """
    scale = fp8_e4m3(x.abs().amax(-1, keepdim=True) * (1 / E2M1_MOST))
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1.0 / scale)
    return e2m1(x * inverse) * scale
