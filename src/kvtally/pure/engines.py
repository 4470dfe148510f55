"""What each engine reserves for a cache: one function over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, require_one_of
from kvtally.core.footprint import Footprint, Place
from kvtally.pure import engine_llama_cpp, engine_sglang, engine_transformers, engine_vllm
from kvtally.pure.engine_llama_cpp import LlamaCppRules
from kvtally.pure.engine_parts import Asked, choices
from kvtally.pure.engine_sglang import SglangRules
from kvtally.pure.engine_transformers import TransformersRules
from kvtally.pure.engine_vllm import VllmRules
from kvtally.pure.size import cache_types, size

Reserve = Callable[..., dict[Place, int]]

# What each engine's choices are, what it reserves under them, and which of them is its block size.
ENGINES: dict[str, tuple[type[Any], Reserve, str | None]] = {
    "transformers": (TransformersRules, engine_transformers.reserve, None),
    "vllm": (VllmRules, engine_vllm.reserve, "block_size"),
    "sglang": (SglangRules, engine_sglang.reserve, "page_size"),
    "llama.cpp": (LlamaCppRules, engine_llama_cpp.reserve, None),
}


def reserved(
    engine: str,
    decoder: Decoder,
    tokens: int,
    *,
    batch: int = 1,
    dtype: str = "bf16",
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    tensor_parallel: int = 1,
    block_size: int | None = None,
    **rules: Any,
) -> Footprint:
    """Bytes that `engine` allocates for `batch` sequences of `tokens` tokens on one device, beside those held.

    `rules` are the engine's own choices by name (see `VllmRules`, `SglangRules`, `LlamaCppRules`,
    `TransformersRules`); all of them are in `conventions`. `block_size` is for engines that have pages.
    Raises InputError for an engine, a choice, a type or a kind of layer that is not known.
    Not counted: weights, activations, what an engine takes of the memory left over.

    >>> from kvtally.core.decoder import lesson
    >>> reserved("vllm", lesson(), 100, block_size=16, null_blocks=0).bytes_reserved  # 7 * 16 * 2 * 64 * 2
    28672
    """
    require_one_of("engine", engine, ENGINES)
    made, reserve, _ = ENGINES[engine]
    chosen = choices(engine, made, rules if block_size is None else _paged(engine, block_size, rules))
    named = {"dtype": dtype, "k_dtype": k_dtype, "v_dtype": v_dtype, "state_dtype": state_dtype}
    held = size(decoder, tokens, batch=batch, tensor_parallel=tensor_parallel, **named)  # type: ignore[arg-type]
    types = cache_types(dtype, k_dtype=k_dtype, v_dtype=v_dtype, state_dtype=state_dtype)
    asked = Asked(tokens=tokens, batch=batch, types=types, tensor_parallel=tensor_parallel)
    said = {name: v if isinstance(v, int) else str(v) for name, v in asdict(chosen).items() if v is not None}
    conventions = {**held.conventions, **said}
    return replace(held, reserved=reserve(decoder, asked, chosen), engine=engine, conventions=conventions)


def _paged(engine: str, block_size: int, rules: dict[str, Any]) -> dict[str, Any]:
    """The choices with `block_size` among them, under the name that the engine has for it."""
    name = ENGINES[engine][2]
    if name is None:
        raise InputError(f"`block_size` is {block_size!r}, and {engine} has no pages", hint="leave it out")
    if name in rules:
        raise InputError(f"`block_size` is {block_size!r} and `{name}` {rules[name]!r}, expected one of them")
    return {name: block_size, **rules}
