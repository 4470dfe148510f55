"""Which operators are matrix products, and how many multiplications each makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

Args = tuple[Any, ...]


class Kind(NamedTuple):
    """What an operator is to a count, and how its MACs follow from arguments and result.

    `role` is `"product"` or `"convolution"` (`macs` gives one number), `"attention"` (`macs` gives two: scores and
    mixing), `"softmax"` (what stands between scores and mixing) or `"unknown"` (looks like a
    product, no formula here: `macs` gives 0).
    """

    role: str
    macs: Callable[[Args, Any], Any]


def _times_columns(first: int, second: int) -> Callable[[Args, Any], int]:
    """(..., m, k) by (..., k, n): elements of the left one times columns of the right one."""

    def macs(args: Args, _out: Any) -> int:
        return int(args[first].numel() * args[second].shape[-1])

    return macs


def _elements(place: int) -> Callable[[Args, Any], int]:
    """A matrix by a vector, or two vectors: one multiplication for each element of argument `place`."""
    return lambda args, _out: int(args[place].numel())


def _grouped(args: Args, _out: Any) -> int:
    """Rows sorted by group, each by its own group's matrix; or groups of columns, each row by all columns."""
    left, right = args[0], args[1]
    rows = left[0].numel() if left.dim() == 3 and right.dim() == 2 else left.numel()
    return int(rows * right.shape[-1])


def _convolution(args: Args, out: Any) -> int:
    """Each element of the result (of the input, where transposed) by one filter's taps and channels."""
    transposed = bool(args[6])
    return int((args[0] if transposed else out).numel() * args[1][0].numel())


def _scores_and_mix(args: Args, _out: Any) -> tuple[int, int]:
    """(..., m, e) queries, (..., s, e) keys, (..., s, d) values: m*s*e to score and m*s*d to mix, each head."""
    query, key, value = args[:3]
    rows = query.shape[:-1].numel()
    return int(query.numel() * key.shape[-2]), int(rows * value.shape[-2] * value.shape[-1])


PRODUCTS: dict[str, Callable[[Args, Any], int]] = {
    "aten::mm": _times_columns(0, 1),
    "aten::addmm": _times_columns(1, 2),
    "aten::_addmm_activation": _times_columns(1, 2),
    "aten::bmm": _times_columns(0, 1),
    "aten::baddbmm": _times_columns(1, 2),
    "aten::addbmm": _times_columns(1, 2),
    "aten::mv": _elements(0),
    "aten::addmv": _elements(1),
    "aten::dot": _elements(0),
    "aten::vdot": _elements(0),
    "aten::_int_mm": _times_columns(0, 1),
    "aten::_scaled_mm": _times_columns(0, 1),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "transformers::grouped_mm_fallback": _grouped,
}

CONVOLUTION = "aten::convolution"

ATTENTION = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "aten::_scaled_dot_product_attention_math",
        "aten::_scaled_dot_product_attention_math_for_mps",
    }
)

SOFTMAX = frozenset({"aten::_softmax", "aten::_safe_softmax"})

PYTORCH = ("aten", "prim", "prims", "inductor", "profiler")  # namespaces whose products have telling names
LOOKS_LIKE = re.compile(r"mm|matmul|linear|conv(?!ert)|attention|einsum|dot|bilinear|solve|lstm|gru|rnn|cdist")


@cache
def kind(operator: Any) -> Kind | None:
    """What `operator` is to a count; None for what multiplies no matrices. MACs are exact integers.

    Operators from outside PyTorch are `"unknown"`: nobody can see what is inside.

    >>> import torch
    >>> kind(torch.ops.aten.mm.default).macs((torch.ones(2, 3), torch.ones(3, 5)), None)  # 2*3*5
    30
    >>> kind(torch.ops.aten.add.Tensor) is None
    True
    """
    name = operator.name().split(".")[0]
    if name in PRODUCTS:
        return Kind("product", PRODUCTS[name])
    if name == CONVOLUTION:
        return Kind("convolution", _convolution)
    if name in ATTENTION:
        return Kind("attention", _scores_and_mix)
    if name in SOFTMAX:
        return Kind("softmax", _nothing)
    namespace, _, bare = name.partition("::")
    if namespace not in PYTORCH or LOOKS_LIKE.search(bare):
        return Kind("unknown", _nothing)
    return None


def _nothing(_args: Args, _out: Any) -> int:
    return 0
