"""vLLM: blocks of tokens, layers grouped by kind, pages of one size, and the numbers it prints of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype, dtype
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.footprint import Place
from kvtally.pure.engine_parts import ATTENTION, Asked, Kept, kept, padded, require_flags, require_kinds
from kvtally.pure.size import CacheTypes

SWAP = 4 * 2**30  # bytes of CPU memory for swapped blocks, the default of the V0 engine
TYPES = (
    "fp32", "bf16", "fp16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head",
    "int4_per_token_head", "nvfp4",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRules:
    """The choices that vLLM's numbers depend on.

    `max_batched_tokens`: a sliding layer keeps them beside its window. `mamba_blocks`: pages of a state for
    a request, 1 (`mamba_cache_mode` none) or 2 (align), and `speculative` more. `alignment`: the block of a
    hybrid is a multiple of it, None for 64 with latents and else 16, and of `block_size` where that is larger.
    `hybrid` False: sliding layers keep everything (V0, or the hybrid manager switched off). `null_blocks` are
    set aside. `index_dtype` is the type of index keys; `latent_row` bytes of a latent where it has a layout of
    its own (656: fp8_ds_mla of DeepSeek-V3.2).
    """

    block_size: int = 16
    max_batched_tokens: int = 8192
    mamba_blocks: int = 1
    speculative: int = 0
    alignment: int | None = None
    hybrid: bool = True
    null_blocks: int = 1
    index_dtype: str = "fp8_per_token_head"
    latent_row: int | None = None

    def __post_init__(self) -> None:
        for name in ("block_size", "max_batched_tokens", "mamba_blocks"):
            require_int(name, getattr(self, name), least=1)
        for name in ("alignment", "latent_row"):
            require_int(name, 1 if getattr(self, name) is None else getattr(self, name), least=1)
        require_flags(self, "hybrid")
        require_int("speculative", self.speculative, least=0)
        require_int("null_blocks", self.null_blocks, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """How one layer is kept: its kind, how far back, bytes a token (or of its state), tokens a page."""

    kind: str
    limit: int | None
    bytes: int
    block: int

    @property
    def page(self) -> int:
        """Bytes that a page needs."""
        return self.bytes if self.kind == "recurrent" else self.block * self.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share a block table; `slots` with those that only pad it, `page` bytes each."""

    specs: tuple[Spec, ...]
    layers: tuple[Kept, ...]
    slots: int
    page: int

    @property
    def spec(self) -> Spec:
        return self.specs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """How vLLM cuts memory: groups of layers, and bytes of one block of all layers of a group.

    >>> from kvtally.core.decoder import lesson
    >>> from kvtally.pure.size import cache_types
    >>> p = pages(lesson(), types=cache_types("bf16"))  # 16 * 2 * 64 * 2
    >>> p.bytes_per_block, p.num_blocks(1_000_000), p.blocks(100), p.concurrency(244, 100)
    (4096, 244, 7, Fraction(244, 7))
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    rules: VllmRules

    @property
    def padding_layers(self) -> int:
        """Slots without a layer: "Add N padding layers"."""
        return sum(group.slots - len(group.layers) for group in self.groups)

    def num_blocks(self, memory: int | Fraction) -> int:
        """Blocks that `memory` bytes allow: "# GPU blocks"."""
        return int(memory // self.bytes_per_block)

    def cpu_blocks(self, swap: int = SWAP) -> int:
        """Blocks of the swap space of the V0 engine: "# CPU blocks"."""
        return swap // self.bytes_per_block

    def blocks(self, tokens: int) -> int:
        """Blocks that one request of `tokens` tokens takes, all groups together."""
        require_int("tokens", tokens, least=1)
        return sum(self.blocks_by_group(tokens))

    def blocks_by_group(self, tokens: int) -> tuple[int, ...]:
        """The same, group by group."""
        return tuple(_blocks(group.spec, tokens, self.rules) for group in self.groups)

    def concurrency(self, num_blocks: int, tokens: int) -> Fraction:
        """ "Maximum concurrency for `tokens` tokens per request"."""
        return Fraction(num_blocks, self.blocks(tokens))

    def cache_tokens(self, num_blocks: int, max_model_len: int) -> int:
        """ "GPU KV cache size" in tokens as printed now: concurrency * max_model_len. A derived number."""
        return int(self.concurrency(num_blocks, max_model_len) * max_model_len)

    def cache_tokens_before(self, num_blocks: int) -> int:
        """ "GPU KV cache size" in tokens as printed before: blocks // groups * block size. A derived number."""
        return num_blocks // len(self.groups) * self.groups[0].spec.block


@lru_cache(maxsize=16)  # a search for what fits asks for one decoder again and again
def pages(decoder: Decoder, *, types: CacheTypes, tensor_parallel: int = 1, rules: VllmRules | None = None) -> Pages:
    """How vLLM pages the cache of `decoder` on one device.

    Layers that are all alike in kind make one group; a block is a page of each of them. Otherwise the page
    is made the same for all: the block of smaller ones is raised (with states: the block of attention until
    its page holds one), and layers are grouped by kind, each group as large as the smallest kind (or the
    largest, where that is less than 1.5 times as many), filled up with padding layers.
    Source: vllm/v1/core/kv_cache_utils.py, v1/kv_cache_interface.py.
    """
    rules = rules or VllmRules()
    parts = kept(decoder, tensor_parallel=tensor_parallel)
    require_kinds("vLLM", parts, (*ATTENTION, "recurrent"))
    for name, found in (("k_dtype", types.k), ("v_dtype", types.v)):
        require_one_of(name, str(found), TYPES)
    if not parts:
        raise InputError("no layer keeps anything, expected a cache to page")
    specs = _unified(tuple(_spec(part, types, rules) for part in parts), parts, rules)
    if len({(s.kind if s.kind != "index" else "full", s.limit, s.block) for s in specs}) == 1:
        page = sum(spec.page for spec in specs)
        group = Group(specs=specs, layers=parts, slots=len(parts), page=0)
        return Pages(groups=(group,), bytes_per_block=page, rules=rules)
    return _grouped(specs, parts, rules)


def reserve(decoder: Decoder, asked: Asked, rules: VllmRules) -> dict[Place, int]:
    """Bytes of the blocks that the requests take, by layer and part; the rest is padding."""
    types = asked.types
    cut = pages(decoder, types=types, tensor_parallel=asked.tensor_parallel, rules=rules)
    found: dict[Place, int] = {(None, "padding"): rules.null_blocks * cut.bytes_per_block}
    for group in cut.groups:
        count = asked.batch * _blocks(group.spec, asked.tokens, rules)
        for spec, part in zip(group.specs, group.layers, strict=True):
            times = count * (1 if spec.kind == "recurrent" else spec.block)
            used = 0
            for name in part.names:
                n = times * _part_bytes(part, name, types, rules)
                found[part.layer, name] = found.get((part.layer, name), 0) + n
                used += n
            more = count * (group.page or spec.page) - used
            found[part.layer, "padding"] = found.get((part.layer, "padding"), 0) + more
        found[None, "padding"] += count * group.page * (group.slots - len(group.layers))
    return found


def _spec(part: Kept, types: CacheTypes, rules: VllmRules) -> Spec:
    total = sum(_part_bytes(part, name, types, rules) for name in part.names)
    if not rules.hybrid and part.kind in ("sliding", "chunked"):
        return Spec(kind="full", limit=None, bytes=total, block=rules.block_size)
    return Spec(kind=part.kind, limit=part.limit, bytes=total, block=rules.block_size)


def _part_bytes(part: Kept, name: str, types: CacheTypes, rules: VllmRules) -> int:
    """Bytes of a token (or of the state) in one part of a layer."""
    if name == "latent" and rules.latent_row is not None:
        return rules.latent_row
    of: dict[str, Dtype] = {
        "v": types.v, "conv": types.conv, "state": types.state, "index": dtype(rules.index_dtype, what="index_dtype"),
    }  # fmt: skip
    return part.bytes(name, of.get(name, types.k))


def _unified(specs: tuple[Spec, ...], parts: tuple[Kept, ...], rules: VllmRules) -> tuple[Spec, ...]:
    """The specs with blocks raised so that all pages hold the same, where layers differ in kind."""
    states = [spec.page for spec in specs if spec.kind == "recurrent"]
    attends = [spec for spec in specs if spec.kind != "recurrent"]
    if not attends or len({(s.kind if s.kind != "index" else "full", s.limit) for s in specs}) == 1:
        return specs
    if states:
        latent = any(row.part == "latent" for part in parts for row in part.rows)
        align = max(rules.alignment or (64 if latent else 16), rules.block_size)
        widest = max(spec.bytes for spec in attends)
        block = padded(-(-max(states) // widest), align)
        specs = tuple(spec if spec.kind == "recurrent" else replace(spec, block=block) for spec in specs)
    page = max(spec.page for spec in specs)
    return tuple(spec if spec.kind == "recurrent" else _raised(spec, page) for spec in specs)


def _raised(spec: Spec, page: int) -> Spec:
    if page % spec.page:
        raise InputError(
            f"a page of a {spec.kind} layer has {spec.page:,} bytes and the largest {page:,}, expected a whole number "
            "of the one in the other: vLLM pages layers alike",
            hint="choose another block_size",
        )
    return replace(spec, block=spec.block * (page // spec.page))


def _grouped(specs: tuple[Spec, ...], parts: tuple[Kept, ...], rules: VllmRules) -> Pages:
    alike: dict[Spec, list[Kept]] = {}
    for spec, part in zip(specs, parts, strict=True):
        alike.setdefault(spec, []).append(part)
    counts = [len(layers) for layers in alike.values()]
    slots = max(counts) if 2 * max(counts) < 3 * min(counts) else min(counts)
    page = max(spec.page for spec in alike)
    groups = []
    for spec, layers in alike.items():
        many = -(-len(layers) // slots)
        for start in range(many):
            own = tuple(layers[start::many])
            groups.append(Group(specs=(spec,) * len(own), layers=own, slots=slots, page=page))
    groups.sort(key=lambda group: group.spec.kind != "full")
    return Pages(groups=tuple(groups), bytes_per_block=slots * page, rules=rules)


def _blocks(spec: Spec, tokens: int, rules: VllmRules) -> int:
    """Blocks of one group for a request of `tokens` tokens."""
    if spec.kind == "recurrent":
        return rules.mamba_blocks + rules.speculative
    limit = spec.limit or 0
    if spec.kind == "cross":
        return -(-limit // spec.block)
    if spec.kind == "sliding":
        return -(-min(limit - 1 + rules.max_batched_tokens, tokens) // spec.block) + 1
    if spec.kind == "chunked":
        return -(-min(limit + rules.max_batched_tokens, tokens) // spec.block)
    return -(-tokens // spec.block)
