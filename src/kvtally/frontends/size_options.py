"""The options of `size` as records: bytes, devices, memory, a ridge point, the question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import dtype
from kvtally.core.errors import InputError, require_one_of
from kvtally.frontends.options import filled, flag, integer, need, refuse
from kvtally.frontends.size_question import Memory, SizeQuestion

FORMATS = ("table", "json", "csv", "md")
DEFAULTS = {"tokens": "32768", "batch": "1", "gpu_memory_utilization": "0.9"}
NEEDS = (
    ("weights", "memory"), ("gpu_memory_utilization", "memory"), ("ridge", "roofline"), ("fast_memory", "roofline"),
    ("also", "plot"),
)  # fmt: skip
NOT_EXPLAINED = ("batch", "engine", "measure", "roofline", "plot", "facts", "html")  # what needs these is refused, too
ENGINES = ("transformers", "vllm", "sglang", "llama.cpp")
WITHOUT_PAGES = ("transformers", "llama.cpp")
UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)
}
MOST_DEVICES = 10**6
LARGEST = 2**80  # bytes; more is taken for a slip of the keyboard
RIDGE = "295"  # H100 SXM, bf16 without sparsity: 989 TFLOP/s over 3.35 TB/s

Given = Mapping[str, Any]


def question(decoder: Decoder, given: Given, weights: int | None) -> SizeQuestion:
    """What is asked of `decoder`, from the options as they were typed."""
    given = filled(given, DEFAULTS)
    require_one_of("--format", given["form"], FORMATS)
    devices = integer("tensor_parallel_size", given["tensor_parallel_size"], least=1, most=MOST_DEVICES)
    for name in ("kv_cache_dtype", "k_dtype", "v_dtype"):
        if given[name] is not None:
            dtype(given[name], what=flag(name))
    memory = None
    if given["memory"] is not None:
        used = share(given["gpu_memory_utilization"])
        memory = Memory(total=count_of_bytes("memory", given["memory"]), used=used, weights=weights, devices=devices)
    engine = given["engine"]
    if engine is not None:
        require_one_of("--engine", engine, ("all", *ENGINES))
    block = given["block_size"]
    if block is not None and engine in WITHOUT_PAGES:
        raise InputError(f"`--block-size` is given with `--engine {engine}`, which has no pages; leave one of them out")
    return SizeQuestion(
        decoder=decoder,
        tokens=integer("tokens", given["tokens"], least=1),
        batch=integer("batch", given["batch"], least=1),
        dtype=given["kv_cache_dtype"],
        k_dtype=given["k_dtype"],
        v_dtype=given["v_dtype"],
        devices=devices,
        block_size=None if block is None else integer("block_size", block, least=1),
        engines=ENGINES if engine in (None, "all") else (engine,),
        alone=engine not in (None, "all"),
        memory=memory,
    )


def check(given: Given) -> None:
    """Refuses options that would have no effect."""
    need(given, NEEDS)
    if given["explain"] is not None:
        refuse(given, NOT_EXPLAINED, "with `--explain`")


def weights(model: str, typed: str | None) -> int | None:
    """Bytes of the weights: as typed, or read from the files of `model` where that is `auto`."""
    if typed is None:
        return None
    if typed != "auto":
        return count_of_bytes("weights", typed, least=0)
    from kvtally.pure.weights import weight_bytes

    return weight_bytes(model)


def count_of_bytes(name: str, typed: str, *, least: int = 1) -> int:
    """A number of bytes, from `80GiB`, `24GB` or `1000`.

    >>> count_of_bytes("memory", "1.5KiB"), count_of_bytes("memory", "2 kB")
    (1536, 2000)
    """
    found = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,9})?) ?([A-Za-z]{0,3})", typed)
    unit = found and UNITS.get(found[2] or "B")
    if not found or unit is None:
        raise InputError(
            f"`{flag(name)}` is {typed[:40]!r}, expected a number of bytes, such as 80GiB or 24GB",
            hint=f"units are {', '.join(UNITS)}",
        )
    size = Fraction(found[1]) * unit
    if size.denominator > 1 or not least <= size <= LARGEST:
        raise InputError(f"`{flag(name)}` is {typed[:40]!r}, expected a whole number of bytes of at least {least}")
    return int(size)


def share(typed: str) -> Fraction:
    """A part of the whole, as it was typed and not rounded.

    >>> share("0.9")
    Fraction(9, 10)
    """
    value = _decimal(typed)
    if value is None:
        raise InputError(f"`--gpu-memory-utilization` is {typed[:40]!r}, expected more than 0 and at most 1")
    return value


def ridge(typed: str | None) -> Fraction:
    """FLOPs for each byte, from `295` or from FLOP/s and bytes/s: `989e12/3.35e12`.

    >>> ridge("989e12/3.35e12") == Fraction(98900, 335)
    True
    """
    parts = [_decimal(part) for part in (typed or RIDGE).split("/")]
    if len(parts) > 2 or any(part is None or part <= 0 for part in parts):
        raise InputError(
            f"`--ridge` is {(typed or '')[:40]!r}, expected FLOPs for each byte, or FLOP/s and bytes/s",
            hint="write 295, or 989e12/3.35e12",
        )
    first, *rest = (part for part in parts if part is not None)
    return first / rest[0] if rest else first


def _decimal(typed: str) -> Fraction | None:
    try:
        value = Decimal(typed) if len(typed) <= 30 else None
    except InvalidOperation:
        return None
    return Fraction(value) if value is not None and value.is_finite() and abs(value.adjusted()) < 60 else None
