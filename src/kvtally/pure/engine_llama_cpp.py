"""llama.cpp: padded cells by stream, a smaller cache for sliding layers, float32 recurrent memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype, dtype
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.footprint import Place
from kvtally.pure.engine_parts import Kept, kept, padded, require_kinds
from kvtally.pure.size import CacheTypes

NAMES = {"fp16": "f16", "fp32": "f32"}  # as llama.cpp prints them
TYPES = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
VERSIONS = ("2025-11", "2025-05", "before iSWA")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppRules:
    """How llama.cpp is started, and of which time it is.

    `n_ctx` None: tokens * batch. `unified`: all sequences share one stream of cells. `swa_full`: sliding
    layers get all cells. `flash_attention` False: V of layers of unequal width is padded to the widest.
    `version`: "2025-11" and later pad to 256 and give sliding layers window + n_ubatch cells; "2025-05"
    gives window * sequences + n_batch, padded to `pad`; "before iSWA" gives all layers all cells.
    """

    n_ctx: int | None = None
    n_batch: int = 2048
    n_ubatch: int = 512
    unified: bool = False
    swa_full: bool = False
    flash_attention: bool = True
    pad: int = 256
    snapshots: int = 0
    version: str = "2025-11"

    def __post_init__(self) -> None:
        require_one_of("version", self.version, VERSIONS)
        require_int("n_ctx", 1 if self.n_ctx is None else self.n_ctx, least=1)
        for name in ("n_batch", "n_ubatch", "pad"):
            require_int(name, getattr(self, name), least=1)
        require_int("snapshots", self.snapshots, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache that llama.cpp allocates, and the line it prints of it.

    `first` and `second` are K and V, or R and S of recurrent memory; `layers` as the line counts them.
    """

    name: str
    cells: int
    layers: int
    sequences: int
    streams: int
    first: dict[int, int]
    second: dict[int, int]
    types: tuple[str, str]

    @property
    def bytes(self) -> int:
        return sum(self.first.values()) + sum(self.second.values())

    def __str__(self) -> str:
        sizes = [mib(self.bytes), mib(sum(self.first.values())), mib(sum(self.second.values()))]
        if self.name == "llama_memory_recurrent":
            head = f"({self.cells:6} cells, {self.layers:3} layers, {self.sequences:2} seqs), R"
            names = ("S",)
        else:
            head = f"({self.cells:6} cells, {self.layers:3} layers, {self.sequences:2}/{self.streams} seqs), K"
            names = ("V",)
        return (
            f"{self.name}: size = {sizes[0]:>7} MiB {head} ({self.types[0]}): {sizes[1]:>7} MiB, "
            f"{names[0]} ({self.types[1]}): {sizes[2]:>7} MiB"
        )


def caches(
    decoder: Decoder, tokens: int, *, batch: int, types: CacheTypes, rules: LlamaCppRules
) -> tuple[Cache, ...]:
    """The caches that llama.cpp allocates for `batch` sequences of `tokens` tokens, in its order.

    Cells of a stream are n_ctx / streams, padded to 256; a row is all K (or V) of a layer and token; a
    sliding layer has PAD(min(cells, window * (sequences if unified else 1) + n_ubatch)) cells; recurrent
    memory is float32, one cell a sequence. MLA has no V. Source: src/llama-kv-cache*.cpp,
    llama-memory-recurrent.cpp. Not counted: cross attention, which llama.cpp does not cache.
    """
    parts = tuple(part for part in kept(decoder) if part.kind != "cross")
    require_kinds("llama.cpp", parts, ("full", "sliding", "chunked", "recurrent"))
    known_types(types, parts)
    base, streams = cells(tokens, batch, rules)
    own = [part for part in parts if part.kind != "recurrent"]
    recurrent = [part for part in parts if part.kind == "recurrent"]
    slides = rules.version != "before iSWA" and any(part.limit for part in own)
    empty = () if recurrent else tuple(i for i, layer in enumerate(decoder.layers) if not layer.mixers)
    full = [part for part in own if not (slides and part.limit)]
    found = [_attention(full, base, streams, batch, types, rules, empty)] if full or slides or empty else []
    if slides:
        limit = max(part.limit or 0 for part in own)
        short = sliding_cells(base, limit, batch, rules)
        found.append(_attention([p for p in own if p.limit], short, streams, batch, types, rules))
    if recurrent:
        found.append(_recurrent(recurrent, len(decoder.layers), batch, types, rules))
    return tuple(found)


def cells(tokens: int, batch: int, rules: LlamaCppRules) -> tuple[int, int]:
    """Cells of one stream of a layer that sees everything, and streams.

    >>> cells(5000, 1, LlamaCppRules()), cells(1250, 4, LlamaCppRules(unified=True))
    ((5120, 1), (5120, 1))
    """
    n_ctx = tokens * batch if rules.n_ctx is None else rules.n_ctx
    streams = 1 if rules.unified or rules.version != VERSIONS[0] else batch
    return padded(max(1, n_ctx // streams), rules.pad), streams


def sliding_cells(base: int, window: int, batch: int, rules: LlamaCppRules) -> int:
    """Cells of one stream of a sliding layer.

    >>> sliding_cells(65536, 1024, 1, LlamaCppRules()), sliding_cells(65536, 1024, 1, LlamaCppRules(version="2025-05"))
    (1536, 3072)
    """
    if rules.swa_full:
        return base
    if rules.version == "2025-05":
        return min(base, padded(window * batch + rules.n_batch, rules.pad))
    return padded(min(base, window * (batch if rules.unified else 1) + min(rules.n_ubatch, rules.n_batch)), rules.pad)


def reserve(
    decoder: Decoder, tokens: int, batch: int, types: CacheTypes, tensor_parallel: int, rules: LlamaCppRules
) -> dict[Place, int]:
    """Bytes that llama.cpp allocates, by layer and part."""
    if tensor_parallel != 1:
        raise InputError(
            f"`tensor_parallel` is {tensor_parallel}, expected 1: llama.cpp splits models by layers",
            hint="add the bytes of the layers on each device",
        )
    parts: dict[Place, int] = {}
    for cache in caches(decoder, tokens, batch=batch, types=types, rules=rules):
        names = ("conv", "state") if cache.name == "llama_memory_recurrent" else ("k", "v")
        for part, table in zip(names, (cache.first, cache.second), strict=True):
            for layer, n in table.items():
                parts[layer, part] = n
    return parts


def mib(n: int) -> str:
    """MiB as llama.cpp prints them: two decimals of a float32.

    >>> mib(1223294976), mib(544 * 2**20)  # the first is 1166.625
    ('1166.62', '544.00')
    """
    (single,) = struct.unpack("f", struct.pack("f", n))
    return f"{single / 2**20:.2f}"


def _attention(
    parts: list[Kept],
    each: int,
    streams: int,
    batch: int,
    types: CacheTypes,
    rules: LlamaCppRules,
    empty: tuple[int, ...] = (),
) -> Cache:
    widest = max((part.elements("v") for part in parts), default=0)
    k, v = {}, {}
    for part in parts:
        k[part.layer] = each * streams * types.k.row(part.elements("k", "latent"))
        values = part.elements("v") if rules.flash_attention else widest
        v[part.layer] = each * streams * types.v.row(values)
    return Cache(
        name="llama_kv_cache",
        cells=each,
        layers=len(parts) + len(empty),
        sequences=batch,
        streams=streams,
        first=k,
        second=v,
        types=(printed(types.k), printed(types.v)),
    )


def _recurrent(parts: list[Kept], layers: int, batch: int, types: CacheTypes, rules: LlamaCppRules) -> Cache:
    rows, state = batch * (1 + rules.snapshots), dtype("fp32")
    return Cache(
        name="llama_memory_recurrent",
        cells=batch,
        layers=layers,
        sequences=batch,
        streams=1,
        first={part.layer: rows * state.row(part.elements("conv")) for part in parts},
        second={part.layer: rows * state.row(part.elements("state")) for part in parts},
        types=("f32", "f32"),
    )


def known_types(types: CacheTypes, parts: tuple[Kept, ...]) -> None:
    """Nothing where llama.cpp has the types of K and V; otherwise an InputError that lists those it has."""
    for name, found in (("k_dtype", types.k), ("v_dtype", types.v)):
        require_one_of(name, str(found), TYPES)
    if types.k != types.v and any(row.part == "latent" for part in parts for row in part.rows):
        raise InputError(
            f"`k_dtype` is `{types.k}` and `v_dtype` `{types.v}`, expected the same: "
            "llama.cpp refuses two types where a latent is cached"
        )


def printed(found: Dtype) -> str:
    """The type as llama.cpp prints it."""
    return NAMES.get(str(found), str(found))


def lines(decoder: Decoder, tokens: int, *, batch: int, types: CacheTypes, rules: LlamaCppRules) -> Iterator[str]:
    """The lines that llama.cpp prints of its caches."""
    return (str(cache) for cache in caches(decoder, tokens, batch=batch, types=types, rules=rules))
