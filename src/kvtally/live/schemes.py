"""Rounding schemes: what a number is when it is read back from a cache of lower precision, and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvtally.core.dtype import DTYPES, Dtype, dtype
from kvtally.core.errors import InputError, require_one_of
from kvtally.live import schemes_float, schemes_gguf, schemes_group

ROUND: dict[str, Callable[[Tensor], Tensor]] = {
    "fp32": schemes_float.same,
    "bf16": schemes_float.bf16,
    "fp16": schemes_float.fp16,
    "fp8_e4m3": schemes_float.fp8_e4m3,
    "fp8_e5m2": schemes_float.fp8_e5m2,
    "fp8_per_token_head": schemes_float.fp8_per_token_head,
    "int8": schemes_group.int8,
    "int8_per_token_head": schemes_group.int8_per_token_head,
    "int4": schemes_group.int4,
    "int2": schemes_group.int2,
    "nvfp4": schemes_float.nvfp4,
    "q8_0": schemes_gguf.q8_0,
    "q5_1": schemes_gguf.q5_1,
    "q5_0": schemes_gguf.q5_0,
    "q4_1": schemes_gguf.q4_1,
    "q4_0": schemes_gguf.q4_0,
}
SCHEMES = tuple(ROUND)
CASTS = ("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2")  # no scale that depends on the numbers
GROUPED = ("int8", "int4", "int2")  # these alone leave group and axis to choose
GROUPS = (32, 64, "head")
AXES = ("token", "channel")
SAME = {"fp8": "fp8_e4m3"}  # what vLLM means by fp8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to round K or V as they are written to the cache. `scheme(name)` makes one, and checks it.

    `group`: how many elements share a scale, where there is a choice; "head" is a whole row, all head_dim
    elements of one token. `axis`: along which way a group runs: "token" is along head_dim within one token,
    "channel" is along the tokens of one channel.
    """

    name: str
    group: int | str | None
    axis: str

    def __str__(self) -> str:
        return storage(self).name + (" by channel" if self.axis == "channel" else "")


def scheme(name: str, *, group: int | str | None = None, axis: str = "token") -> Scheme:
    """The scheme that `name` means: a name that `size` knows, `float32` and its like included.

    int8, int4 and int2 take `group` 32, 64 or "head" (the default where the axis is "token"), and `axis`
    "channel" with 32 or 64; `int4_g64` is int4 in groups of 64. All others fix both.

    >>> scheme("int4", group=32, axis="channel")
    Scheme(name='int4', group=32, axis='channel')
    >>> scheme("int4_g64") == scheme("int4", group=64), scheme("float16").name
    (True, 'fp16')
    """
    require_one_of("axis", axis, AXES)
    known = dtype(name, what="scheme").name
    base, _, suffix = known.partition("_g")
    if suffix:
        if group not in {None, int(suffix)}:
            raise InputError(f"`group` is {group!r} and `{known}` has groups of {suffix}, expected one of the two")
        known, group = base, int(suffix)
    known = SAME.get(known, known)
    if known not in ROUND:
        raise InputError(
            f"`scheme` is `{known}`, which can be sized and not rounded: vLLM rotates a row first, and how depends "
            f"on its version; known: {', '.join(f'`{n}`' for n in SCHEMES)}",
            hint="`int4` with the group `head` takes the same bytes",
        )
    if known not in GROUPED:
        if group is not None or axis != "token":
            asked = f"group {group!r}" if group is not None else f"axis {axis!r}"
            raise InputError(
                f"`{known}` was asked for {asked}, and fixes both itself",
                hint=f"only {', '.join(GROUPED)} take a group and an axis",
            )
        return Scheme(name=known, group=None, axis="token")
    return Scheme(name=known, group=_checked(group, axis), axis=axis)


def rounded(scheme: Scheme, x: Tensor) -> Tensor:
    """`x` as it is read back from the cache: float32, of the same shape.

    x: (…, tokens, width), of any floating-point type, taken as float32 first. By channel whole groups of
    tokens are expected, and by token whole groups of channels; others are an InputError. So are NaN and
    infinities, bar in types without a scale of their own, which treat them as the type does; and rows whose
    scale or zero-point lies outside of fp16, where it is stored.

    >>> rounded(scheme("int2"), torch.tensor([[0.0, 1.0, 4.0, 9.0, 1.5]]))  # 4 levels: 0, 3, 6, 9
    tensor([[0., 0., 3., 9., 0.]])
    """
    if not x.is_floating_point():
        raise InputError(f"the tensor to round has type {x.dtype}, expected a floating-point one")
    if not x.numel():
        return x.float()
    if scheme.name in CASTS:
        return ROUND[scheme.name](x.float())
    along = x.float().transpose(-1, -2) if scheme.axis == "channel" else x.float()
    storage(scheme).row(along.shape[-1])  # refuses what is no whole number of blocks
    if not torch.isfinite(along).all():
        raise InputError(
            f"the tensor to round to `{scheme.name}` has NaN or infinite elements, expected finite ones",
            hint="`bf16` and `fp16` keep them",
        )
    read = ROUND[scheme.name](along.unflatten(-1, (-1, _block(scheme) or along.shape[-1]))).flatten(-2)
    if not torch.isfinite(read).all():
        raise InputError(
            f"a scale of `{scheme.name}` is stored as fp16 and would be infinite: elements reach "
            f"{along.abs().max().item():.3g}, expected a range that fp16 holds",
            hint="`bf16` holds it",
        )
    return read.transpose(-1, -2) if scheme.axis == "channel" else read


def stored_bytes(scheme: Scheme, tokens: int, width: int) -> int:
    """Bytes of a slab of `tokens` rows of `width` elements, scales and zero-points included.

    The figure of `size` for `storage(scheme)`; by channel, of the slab turned on its side. A scale of a whole
    tensor is not counted.

    >>> stored_bytes(scheme("int4", group=32), 64, 128)  # 64 * 4 groups of 32/2 + 4 bytes
    5120
    >>> stored_bytes(scheme("int4", group=32, axis="channel"), 64, 128)  # 128 * 2 groups
    5120
    """
    rows, along = (width, tokens) if scheme.axis == "channel" else (tokens, width)
    return storage(scheme).bytes(rows, along)


def storage(scheme: Scheme) -> Dtype:
    """The element type by which `size` counts the bytes of `scheme`.

    >>> storage(scheme("int4", group=32)).name, storage(scheme("int4")).name
    ('int4_g32', 'int4')
    """
    return DTYPES[f"{scheme.name}_g{scheme.group}" if isinstance(scheme.group, int) else scheme.name]


def _block(scheme: Scheme) -> int:
    """How many elements share a scale; 0 for a whole row."""
    return storage(scheme).block


def _checked(group: int | str | None, axis: str) -> int | str:
    known = GROUPS[:-1] if axis == "channel" else GROUPS
    if group is None and axis == "token":
        return "head"
    if group is None or isinstance(group, bool) or group not in known:
        raise InputError(
            f"`group` is {group!r} for the axis {axis!r}; known: {', '.join(f'`{g}`' for g in known)}",
            hint="by channel a group is a number of tokens" if axis == "channel" else "",
        )
    return group
