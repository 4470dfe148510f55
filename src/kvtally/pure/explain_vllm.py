"""vLLM's lines: tokens of the cache, concurrency, blocks, memory; each read with the others around it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from re import Match

from kvtally.core.decoder import Decoder
from kvtally.pure.engine_vllm import SWAP, Pages, pages
from kvtally.pure.explained import COUNT, DECIMAL, Explanation, Logged, interval, off, whole

TOKENS = rf"GPU KV cache size: (?P<tokens>{COUNT}) tokens"
CONCURRENCY = rf"Maximum concurrency for (?P<tokens>{COUNT}) tokens per request: (?P<times>{DECIMAL})x"
BLOCKS = rf"# \w+ blocks: (?P<gpu>{COUNT}), # CPU blocks: (?P<cpu>{COUNT})"
AVAILABLE = rf"Available KV cache memory: (?P<gib>{DECIMAL}) GiB"
GIB = 2**30
RANKS = "the fewest blocks of all devices count, and the memory printed is that of one"

Range = tuple[int, int]  # numbers of blocks, both included; empty where the first is larger


def explain_tokens(found: Match[str], decoder: Decoder, logged: Logged) -> Explanation:
    """Reproduces the tokens of the cache: under today's rule, or the one before, whichever gives them."""
    cut, printed = _pages(decoder, logged), whole(found["tokens"])
    length, others = _max_model_len(logged), _blocks_said(cut, logged, but=TOKENS)

    def reading(rule: str, blocks: Range, compute: Callable[[int], Fraction | int]) -> Reading:
        return Reading(
            line=found.string,
            quantity="tokens of the cache",
            printed=printed,
            text=f"{printed:,} tokens",
            blocks=blocks,
            compute=compute,
            said=lambda n: f"{int(n):,} tokens",
            arithmetic=f"tokens = {rule}",
            notes=("a derived number: neither a size of memory nor tokens that one request may have",),
        )

    groups, block = len(cut.groups), cut.groups[0].spec.block
    choices = [reading(f"blocks // {groups} groups x {block} tokens", _before(cut, printed), cut.cache_tokens_before)]
    if length is not None:
        rule = f"blocks / {cut.blocks(length)} blocks a request x {length:,}"
        now = reading(rule, _now(cut, printed, length), lambda n: cut.cache_tokens(n, length))
        choices.insert(0, now)
    chosen = min(choices, key=lambda one: (_empty(_both(one.blocks, others)), _empty(one.blocks)))
    return chosen.explained(cut, logged, others)


def explain_concurrency(found: Match[str], decoder: Decoder, logged: Logged) -> Explanation:
    """Reproduces how many requests of that length fit: blocks / blocks of one request."""
    cut, tokens, times = _pages(decoder, logged), whole(found["tokens"]), found["times"]
    each = cut.blocks(tokens)
    return Reading(
        line=found.string,
        quantity=f"requests of {tokens:,} tokens that fit at once",
        printed=Fraction(times),
        text=f"{times}x",
        blocks=_between(*(edge * each for edge in interval(times))),
        compute=lambda n: Fraction(n, each),
        said=lambda x: f"{float(x):.2f}x",
        arithmetic=f"requests = blocks / {each} blocks a request "
        f"({' + '.join(map(str, cut.blocks_by_group(tokens)))} by group)",
    ).explained(cut, logged, _blocks_said(cut, logged, but=CONCURRENCY))


def explain_blocks(found: Match[str], decoder: Decoder, logged: Logged) -> Explanation:
    """Reproduces blocks: on the CPU from 4 GiB of swap space, on the GPU from the memory given."""
    cut, gpu, cpu = _pages(decoder, logged), whole(found["gpu"]), whole(found["cpu"])
    ours = cut.cpu_blocks()
    others = _blocks_said(cut, logged, but=BLOCKS)
    notes = [f"{gpu:,} blocks hold {gpu * cut.groups[0].spec.block // len(cut.groups):,} tokens"]
    arithmetic = [_block(cut), f"# CPU blocks = {SWAP:,} bytes of swap space // bytes a block = {ours:,}"]
    fits = others is None or others[0] <= gpu <= others[1]
    computed = f"{gpu:,} GPU blocks" if fits else f"{others[0]:,} to {others[1]:,} GPU blocks" if others else ""
    if cpu and cpu != ours:
        notes.append(
            f"CPU blocks: {off(cpu, ours)}; swap space of {cpu * cut.bytes_per_block / GIB:.2f} GiB gives them"
        )
    if not fits and others:
        notes.append(off(gpu, others[0]) + f": {RANKS}")
    right = fits and cpu in (0, ours)
    exact = right and cpu == ours
    return Explanation(
        line=found.string, engine="vLLM", quantity="blocks of the cache on one device", status="exact" if exact else
        "consistent" if right else "differs", printed=f"{gpu:,} GPU blocks, {cpu:,} CPU blocks",
        computed=f"{computed}, {ours:,} CPU blocks", arithmetic=tuple(arithmetic), notes=tuple(notes),
    )  # fmt: skip


def explain_available(found: Match[str], decoder: Decoder, logged: Logged) -> Explanation:
    """Says how many blocks the memory gives; it is what is left beside weights, and not computed from a decoder."""
    cut, text = _pages(decoder, logged), found["gib"]
    low, high = (cut.num_blocks(edge) for edge in interval(text, GIB))
    others = _blocks_said(cut, logged, but=AVAILABLE)
    both = _both((low, high), others)
    same = not _empty(both)
    return Explanation(
        line=found.string, engine="vLLM", quantity="memory left for the cache on one device, GiB meaning 2^30 bytes",
        printed=f"{text} GiB", computed=f"{low:,} to {high:,} blocks", status="consistent" if same else "differs",
        arithmetic=(_block(cut),),
        notes=() if same or not others else (f"other lines say {others[0]:,} to {others[1]:,} blocks: {RANKS}",),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A number that follows from a number of blocks: as printed, which blocks give it, and how."""

    line: str
    quantity: str
    printed: Fraction | int
    text: str
    blocks: Range
    compute: Callable[[int], Fraction | int]
    said: Callable[[Fraction | int], str]
    arithmetic: str
    notes: tuple[str, ...] = ()

    def explained(self, cut: Pages, logged: Logged, others: Range | None) -> Explanation:
        """From the blocks that other lines allow or, where none say, those that give what is printed.

        exact: memory or blocks are said, and all that they allow give it; consistent: some do.
        """
        low, high = both = _both(self.blocks, others)
        arithmetic, notes = [_block(cut), self.arithmetic], list(self.notes)
        if not _empty(both):
            alone = others == both and _measured(logged)
            status, computed = "exact" if alone else "consistent", self.said(self.compute(low))
            many = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            arithmetic.append(f"{many} blocks give it, {low * cut.bytes_per_block / GIB:.2f} GiB")
        elif others is None or _empty(others):
            status, computed = "differs", "no number of blocks gives it"
        else:
            low, high = others
            status, computed = "differs", f"{self.said(self.compute(low))} to {self.said(self.compute(high))}"
            notes.append(f"{off(self.printed, self.compute(high))}: {RANKS}")
        return Explanation(
            line=self.line,
            engine="vLLM",
            quantity=self.quantity,
            printed=self.text,
            computed=computed,
            status=status,
            arithmetic=tuple(arithmetic),
            notes=tuple(notes),
        )


def _pages(decoder: Decoder, logged: Logged) -> Pages:
    return pages(decoder, types=logged.types, tensor_parallel=logged.tensor_parallel, rules=logged.rules)


def _block(cut: Pages) -> str:
    """How the bytes of one block come about."""
    first = cut.groups[0]
    if not first.page:
        each = sum(spec.bytes for spec in first.specs)
        layers = f"{len(first.layers)} layers"
        return f"a block: {first.spec.block} tokens x {each:,} bytes in {layers} = {cut.bytes_per_block:,}"
    counts = " + ".join(f"{len(group.layers)} {group.spec.kind}" for group in cut.groups)
    padding = f", {cut.padding_layers} padding" if cut.padding_layers else ""
    return (
        f"a block: {first.spec.block} tokens in a page of {first.page:,} bytes x {first.slots} layers = "
        f"{cut.bytes_per_block:,}, for {len(cut.groups)} groups of layers ({counts}{padding})"
    )


def _max_model_len(logged: Logged) -> int | None:
    said = re.search(CONCURRENCY, logged.context)
    return whole(said["tokens"]) if said else logged.tokens


def _blocks_said(cut: Pages, logged: Logged, *, but: str) -> Range | None:
    """Numbers of blocks that all other lines around, and the memory given, allow; None where nothing is said."""
    ranges: list[Range] = []
    if logged.memory is not None:
        ranges.append((cut.num_blocks(logged.memory),) * 2)
    for form in (AVAILABLE, BLOCKS, CONCURRENCY, TOKENS):
        found = re.search(form, logged.context) if form != but else None
        if found:
            ranges.append(_said_by(form, found, cut, logged))
    both: Range | None = None
    for one in ranges:
        both = _both(one, both)
    return both


def _measured(logged: Logged) -> bool:
    """Whether memory or blocks are said, and not only numbers that follow from them."""
    return logged.memory is not None or any(re.search(form, logged.context) for form in (AVAILABLE, BLOCKS))


def _said_by(form: str, found: Match[str], cut: Pages, logged: Logged) -> Range:
    if form == AVAILABLE:
        low, high = interval(found["gib"], GIB)
        return cut.num_blocks(low), cut.num_blocks(high)
    if form == BLOCKS:
        return (whole(found["gpu"]),) * 2
    if form == CONCURRENCY:
        each = cut.blocks(whole(found["tokens"]))
        return _between(*(edge * each for edge in interval(found["times"])))
    tokens, length = whole(found["tokens"]), _max_model_len(logged)
    before = _before(cut, tokens)
    now = _now(cut, tokens, length) if length is not None else (1, 0)
    if _empty(before) or _empty(now):
        return now if _empty(before) else before
    return min(before[0], now[0]), max(before[1], now[1])


def _before(cut: Pages, tokens: int) -> Range:
    groups, block = len(cut.groups), cut.groups[0].spec.block
    first = tokens // block * groups
    return (1, 0) if tokens % block else (first, first + groups - 1)


def _now(cut: Pages, tokens: int, length: int) -> Range:
    each = cut.blocks(length)
    return -(-tokens * each // length), -(-(tokens + 1) * each // length) - 1


def _between(low: Fraction, high: Fraction) -> Range:
    return int(-(-low // 1)), int(high // 1)


def _both(one: Range, other: Range | None) -> Range:
    return one if other is None else (max(one[0], other[0]), min(one[1], other[1]))


def _empty(one: Range) -> bool:
    return one[0] > one[1]


FORMS: dict[str, tuple[str, str, Callable[[Match[str], Decoder, Logged], Explanation]]] = {
    "vLLM tokens": (TOKENS, "GPU KV cache size: 290,864 tokens", explain_tokens),
    "vLLM concurrency": (
        CONCURRENCY, "Maximum concurrency for 32,768 tokens per request: 33.04x", explain_concurrency,
    ),
    "vLLM blocks": (BLOCKS, "# GPU blocks: 5691, # CPU blocks: 2048", explain_blocks),
    "vLLM memory": (AVAILABLE, "Available KV cache memory: 5.38 GiB", explain_available),
}  # fmt: skip
