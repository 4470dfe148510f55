"""llama.cpp: padded cells by stream, a smaller cache for sliding layers, float32 recurrent memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype, dtype
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.footprint import Place
from kvtally.pure.engine_parts import Asked, Kept, kept, padded, require_flags, require_kinds, summed
from kvtally.pure.size import CacheTypes

NAMES = {"fp16": "f16", "fp32": "f32"}  # as llama.cpp prints them
TYPES = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
STATES = ("fp32",)
RECURRENT = "llama_memory_recurrent"
VERSIONS = ("2025-11", "2025-05", "before iSWA")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppRules:
    """How llama.cpp is started, and of which time it is.

    `n_ctx` None: tokens * batch, the least it may be. `unified`: all sequences share one stream of cells.
    `swa_full`: sliding layers get all cells. `flash_attention` False: V of layers of unequal width is padded
    to the widest.
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
        require_flags(self, "unified", "swa_full", "flash_attention")


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
        if self.name == RECURRENT:
            head = f"({self.cells:6} cells, {self.layers:3} layers, {self.sequences:2} seqs), R"
            names = ("S",)
        else:
            head = f"({self.cells:6} cells, {self.layers:3} layers, {self.sequences:2}/{self.streams} seqs), K"
            names = ("V",)
        return (
            f"{self.name}: size = {sizes[0]:>7} MiB {head} ({self.types[0]}): {sizes[1]:>7} MiB, "
            f"{names[0]} ({self.types[1]}): {sizes[2]:>7} MiB"
        )


def caches(decoder: Decoder, asked: Asked, rules: LlamaCppRules) -> tuple[Cache, ...]:
    """The caches that llama.cpp allocates for the sequences asked for, in its order.

    Cells of a stream are n_ctx / streams, rounded up and padded to 256; a row is all K (or V) of a layer and token; a
    sliding layer has PAD(min(cells, window * (sequences if unified else 1) + n_ubatch)) cells; recurrent
    memory is float32, one cell a sequence. MLA has no V. Source: src/llama-kv-cache*.cpp,
    llama-memory-recurrent.cpp. Not counted: cross attention, whose K and V llama.cpp
    makes anew in every pass.
    """
    parts = tuple(part for part in kept(decoder) if part.kind != "cross")
    require_kinds("llama.cpp", parts, ("full", "sliding", "chunked", "recurrent"))
    known_types(asked.types, parts)
    base, streams = cells(asked.tokens, asked.batch, rules)
    own = [part for part in parts if part.kind != "recurrent"]
    recurrent = [part for part in parts if part.kind == "recurrent"]
    slides = rules.version != "before iSWA" and any(part.limit for part in own)
    full = [part for part in own if not (slides and part.limit)]
    empty = 0 if recurrent else without_any(decoder, own)
    found = []
    if own or empty:
        found.append(_attention(full, (base, streams), asked, rules, empty=empty))
    if slides:
        short = sliding_cells(base, max(part.limit or 0 for part in own), asked.batch, rules)
        found.append(_attention([part for part in own if part.limit], (short, streams), asked, rules))
    if recurrent:
        found.append(_recurrent(recurrent, len(decoder.layers), asked.batch * (1 + rules.snapshots), asked.batch))
    return tuple(found)


def without_any(decoder: Decoder, own: list[Kept]) -> int:
    """Layers that keep nothing and read no other's: llama.cpp counts them, with K and V of width 0."""
    having = {part.layer for part in own}
    return sum(layer.reads is None and index not in having for index, layer in enumerate(decoder.layers))


def cells(tokens: int, batch: int, rules: LlamaCppRules) -> tuple[int, int]:
    """Cells of one stream of a layer that sees everything, and streams.

    >>> cells(5000, 1, LlamaCppRules()), cells(1250, 4, LlamaCppRules(unified=True))
    ((5120, 1), (5120, 1))
    """
    n_ctx = tokens * batch if rules.n_ctx is None else rules.n_ctx
    streams = 1 if rules.unified or rules.version != VERSIONS[0] else batch
    return padded(max(1, -(-n_ctx // streams)), rules.pad), streams


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


def reserve(decoder: Decoder, asked: Asked, rules: LlamaCppRules) -> dict[Place, int]:
    """Bytes that llama.cpp allocates, by layer and part."""
    require_one_device(asked.tensor_parallel)
    needed = asked.tokens * asked.batch
    if rules.n_ctx is not None and rules.n_ctx < needed:
        raise InputError(f"`n_ctx` is {rules.n_ctx:,}, expected at least {needed:,}: the tokens of all requests")
    latent = {part.layer for part in kept(decoder) if part.elements("latent")}
    found: list[tuple[Place, int]] = []
    for cache in caches(decoder, asked, rules):
        names = ("conv", "state") if cache.name == RECURRENT else ("k", "v")
        for part, table in zip(names, (cache.first, cache.second), strict=True):
            named = (("latent" if part == "k" and layer in latent else part, layer, n) for layer, n in table.items())
            found += (((layer, name), n) for name, layer, n in named)
    return summed(found)


def require_one_device(tensor_parallel: int) -> None:
    """Nothing for one device; otherwise an InputError, as llama.cpp gives whole layers to each."""
    if tensor_parallel != 1:
        raise InputError(
            f"`tensor_parallel` is {tensor_parallel}, expected 1: llama.cpp splits models by layers",
            hint="add the bytes of the layers on each device",
        )


def mib(n: int) -> str:
    """MiB as llama.cpp prints them: two decimals of a float32.

    >>> mib(1223294976), mib(544 * 2**20)  # the first is 1166.625
    ('1166.62', '544.00')
    """
    (single,) = struct.unpack("f", struct.pack("f", n))
    return f"{single / 2**20:.2f}"


def _attention(parts: list[Kept], cut: tuple[int, int], asked: Asked, rules: LlamaCppRules, *, empty: int = 0) -> Cache:
    """The cache of these layers, `cut` into cells of a stream and streams."""
    each, streams = cut
    k, v = asked.types.k, asked.types.v
    widest = max((part.elements("v") for part in parts), default=0)
    keys = ((part.layer, each * streams * k.row(part.elements("k", "latent"))) for part in parts)
    values = ((part.layer, part.elements("v") if rules.flash_attention else widest) for part in parts)
    return Cache(
        name="llama_kv_cache",
        cells=each,
        layers=len(parts) + empty,
        sequences=asked.batch,
        streams=streams,
        first=summed(keys),
        second=summed((layer, each * streams * v.row(width)) for layer, width in values),
        types=(printed(k), printed(v)),
    )


def _recurrent(parts: list[Kept], layers: int, rows: int, sequences: int) -> Cache:
    state = dtype("fp32")
    return Cache(
        name=RECURRENT,
        cells=sequences,
        layers=layers,
        sequences=sequences,
        streams=1,
        first=summed((part.layer, rows * state.row(part.elements("conv"))) for part in parts),
        second=summed((part.layer, rows * state.row(part.elements("state"))) for part in parts),
        types=("f32", "f32"),
    )


def known_types(types: CacheTypes, parts: tuple[Kept, ...]) -> None:
    """Nothing where llama.cpp has the types of K, V and states; otherwise an InputError that lists those it has."""
    for name, found in (("k_dtype", types.k), ("v_dtype", types.v)):
        require_one_of(name, str(found), TYPES)
    require_one_of("state_dtype", str(types.state), STATES)
    if types.k != types.v and any(row.part == "latent" for part in parts for row in part.rows):
        raise InputError(
            f"`k_dtype` is `{types.k}` and `v_dtype` `{types.v}`, expected the same: "
            "llama.cpp refuses two types where a latent is cached"
        )


def printed(found: Dtype) -> str:
    """The type as llama.cpp prints it."""
    return NAMES.get(str(found), str(found))


def lines(decoder: Decoder, asked: Asked, rules: LlamaCppRules) -> Iterator[str]:
    """The lines that llama.cpp prints of its caches."""
    return (str(cache) for cache in caches(decoder, asked, rules))
