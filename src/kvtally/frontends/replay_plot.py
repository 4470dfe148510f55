"""The pictures of `replay`: what memory buys as a curve, where prompts differ as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, log2

from kvtally.frontends.plot import line, text
from kvtally.frontends.render import number, size
from kvtally.frontends.replay_question import ReplayAnswer
from kvtally.frontends.replay_text import percent
from kvtally.frontends.report import Picture
from kvtally.traffic.prices import Price, block_bytes, prices

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 74
STEPS = 48  # capacities that the curve is drawn through, at most
TICKS = 8
DOWN, ACROSS = HEIGHT - TOP - BOTTOM, WIDTH - LEFT - RIGHT


def capacities(most: int) -> list[int]:
    """Capacities in blocks, in equal ratios from 1 to `most`.

    >>> capacities(6), len(capacities(10**6)) <= STEPS + 1
    ([1, 2, 3, 4, 5, 6], True)
    """
    return sorted({round(most ** (k / STEPS)) for k in range(STEPS + 1)}) if most else []


def curve(answer: ReplayAnswer) -> Picture:
    """Blocks hit, and work saved, by the size of the cache: multiplications with a model, else prompt tokens."""
    r, q = answer.reuse, answer.question
    at = capacities(r.most)
    priced: tuple[Price, ...] = ()
    if q.decoder is not None and at:
        priced = prices(q.decoder, answer.table, at, dtype=q.dtype, ttl=q.ttl, min_prefix=q.min_prefix)
    worth = "multiplications saved" if priced else "prompt tokens saved"
    hits = [float(r.share(c)) for c in at]
    saved = [p.macs_saved / p.macs_uncached for p in priced] or [float(r.token_share(c)) for c in at]
    rows = [
        (f"{c:,}", _memory(answer, c), f"{100 * hit:.1f} %", f"{100 * work:.1f} %")
        for c, hit, work in zip(at, hits, saved, strict=True)
    ]
    title = "What memory buys"
    svg = _curves(answer, at, (("first", "blocks hit", hits), ("second", worth, saved)), title)
    return Picture(title=title, svg=svg, heads=("blocks", "memory", "blocks hit", worth), rows=rows)


def depths(answer: ReplayAnswer) -> Picture:
    """Requests by the tokens that they share with any prompt before, those that were seen whole apart."""
    w = answer.why
    found = [("all", w.whole)] if w.whole else []
    found += [(number(low, 7) if low else "none", n) for low, _, n in w.diverge]
    most, parts = max((n for _, n in found), default=1), []
    wide = ACROSS / max(len(found), 1)
    for k, (label, n) in enumerate(found):
        x, tall = LEFT + k * wide, DOWN * n / most
        parts.append(
            f'<rect x="{x + wide * 0.1:.1f}" y="{TOP + DOWN - tall:.1f}" width="{wide * 0.8:.1f}" height="{tall:.1f}"/>'
        )
        parts.append(text(x + wide / 2, TOP + DOWN + 18, label, "middle"))
        parts.append(text(x + wide / 2, TOP + DOWN - tall - 6, percent(n, w.requests), "middle"))
    axis = "tokens shared with a prompt before, from … up to the next; all: seen whole"
    parts += [line("axis", LEFT, TOP + DOWN, LEFT + ACROSS, TOP + DOWN)]
    parts += [text(LEFT + ACROSS / 2, TOP + DOWN + 42, axis, "middle")]
    rows = [(label, f"{n:,}", percent(n, w.requests)) for label, n in found]
    title = "Where prompts first differ from all before"
    return Picture(title=title, svg=_svg(parts, title, rows), heads=("tokens shared", "requests", "share"), rows=rows)


def _memory(answer: ReplayAnswer, blocks: int) -> str:
    q = answer.question
    if q.decoder is None:
        return f"{number(blocks * answer.why.block_size, 9)} tokens"
    return size(block_bytes(q.decoder, answer.why.block_size, blocks, q.dtype))


def _curves(
    answer: ReplayAnswer, at: Sequence[int], lines: Sequence[tuple[str, str, Sequence[float]]], title: str
) -> str:
    """Shares from 0 to 100 % over capacities in equal ratios, with blocks and memory below, the knee marked."""
    span = log2(at[-1]) if len(at) > 1 else 1.0

    def across(blocks: int) -> float:
        return LEFT + ACROSS * log2(blocks) / span

    parts = _shares() + _places(across, at, lambda blocks: _memory(answer, blocks))
    knee = answer.reuse.knee
    if knee:
        parts += [line("mark", across(knee), TOP, across(knee), TOP + DOWN)]
        parts += [text(across(knee) - 5, TOP + DOWN - 8, f"knee: {knee:,} blocks", "end")]
    for n, (name, label, shares) in enumerate(lines):
        dots = [(across(c), TOP + DOWN * (1 - share)) for c, share in zip(at, shares, strict=True)]
        if dots:
            parts.append(f'<path class="{name}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in dots)}"/>')
        parts.append(f'<path class="{name}" d="M{LEFT + 230 * n} 16h34"/>' + text(LEFT + 230 * n + 42, 20, label))
    said = [(label, f"{100 * shares[-1]:.1f} % at {at[-1]:,} blocks") for _, label, shares in lines if shares]
    return _svg(parts, title, said)


def _shares() -> list[str]:
    parts = []
    for part in range(0, 101, 25):
        y = TOP + DOWN * (1 - part / 100)
        parts += [
            line("grid" if part else "axis", LEFT, y, LEFT + ACROSS, y),
            text(LEFT - 6, y + 4, f"{part} %", "end"),
        ]
    return parts


def _places(across: Callable[[int], float], at: Sequence[int], memory: Callable[[int], str]) -> list[str]:
    """Powers of two along the axis: so many blocks, so much memory."""
    parts = [text(LEFT + ACROSS / 2, HEIGHT - 12, "size of the cache: blocks, and memory", "middle")]
    powers = range(0, int(log2(at[-1])) + 1) if at else range(0)
    for power in powers[:: ceil(len(powers) / TICKS) or 1]:
        x = across(2**power)
        parts += [line("grid", x, TOP, x, TOP + DOWN)]
        parts += [text(x, TOP + DOWN + 18, number(2**power, 7), "middle" if power else "start")]
        parts += [text(x, TOP + DOWN + 35, memory(2**power), "middle" if power else "start")]
    return parts


def _svg(parts: Sequence[str], title: str, said: Sequence[Sequence[str]]) -> str:
    label = escape(f"{title}. " + "; ".join(" ".join(one) for one in said))
    drawn = "".join(parts)
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{drawn}</svg>'
