"""Bytes against context length as one SVG picture, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2
from pathlib import Path

from kvtally.core.errors import InputError
from kvtally.frontends.output import write_whole
from kvtally.frontends.render import size

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 76, 190, 44, 52  # margins; names of curves stand on the right
COLOURS = ("#0b62c4", "#b3400a", "#12743c", "#8a2b91", "#7a6200", "#3f4a59")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 4")  # so that colour is not needed
MOST = len(COLOURS)
STYLE = """text{font:12px system-ui,sans-serif;fill:#1c2430}.t{font-size:15px;font-weight:600}
.grid{stroke:#d5dbe3}.axis{stroke:#66707d}.mark{stroke:#c02020;stroke-dasharray:6 4}path{fill:none;stroke-width:2.2}
@media(prefers-color-scheme:dark){text{fill:#e8ecf2}.grid{stroke:#37404c}.back{fill:#14181e}path{filter:brightness(1.7)}}
.back{fill:#fff}"""

Place = Callable[[float, float], tuple[float, float]]  # tokens and bytes to a point of the picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A name, and (tokens, bytes) in the order of tokens."""

    name: str
    points: Sequence[tuple[int, int]]


def lengths(tokens: int) -> list[int]:
    """Lengths that a curve is drawn through: 8 for each doubling, from 256 to four times `tokens`.

    >>> lengths(256)[0], lengths(256)[-1], 256 in lengths(256)
    (256, 1024, True)
    """
    most = max(1024, 4 * tokens)
    steps = range(ceil(8 * log2(most / 256)) + 1)
    return sorted({tokens, most, *(min(most, round(256 * 2 ** (k / 8))) for k in steps)})


def svg(curves: Sequence[Curve], *, title: str, memory: int | None = None, tokens: int | None = None) -> str:
    """The picture as text: a curve for each name, a dashed line at the memory given, one at the length asked for.

    >>> line = Curve(name="<gpt2>", points=[(256, 100), (1024, 400)])
    >>> "&lt;gpt2&gt;" in svg([line], title="x"), svg([line], title="x").count("<path")
    (True, 1)
    """
    if not 1 <= len(curves) <= MOST:
        raise InputError(f"{len(curves):,} curves are to be drawn, expected 1 to {MOST}")
    xs = [x for curve in curves for x, y in curve.points if y]
    ys = [y for curve in curves for _, y in curve.points if y]
    if not xs:
        raise InputError("no model holds anything that grows, expected a curve to draw")
    x0, x1 = log2(min(xs)), log2(max(xs))
    y0, y1 = floor(log2(min(ys))), ceil(log2(max([*ys, memory or 1])) + 0.01)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (log2(x) - x0) / max(x1 - x0, 1e-9) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (log2(y) - y0) / max(y1 - y0, 1) * (HEIGHT - TOP - BOTTOM)

    parts = [*_grid(place, x0, x1, y0, y1)]
    if memory:
        _, y = place(2**x0, memory)
        parts.append(line("mark", LEFT, y, WIDTH - RIGHT, y) + text(WIDTH - RIGHT + 8, y + 4, f"memory {size(memory)}"))
    if tokens and x0 <= log2(tokens) <= x1:
        x, _ = place(tokens, 2**y0)
        parts.append(line("mark", x, TOP, x, HEIGHT - BOTTOM))
    parts += _curves(curves, place)
    said = "; ".join(f"{c.name}: {size(c.points[-1][1])} at {c.points[-1][0]:,} tokens" for c in curves)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"{title}. {said}")}">\n<style>{STYLE}</style>\n'
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>\n'
        f'<text class="t" x="{LEFT}" y="24">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _curves(curves: Sequence[Curve], place: Place) -> list[str]:
    """The curves, each with its name beside its end; names that would touch are moved apart."""
    parts, last = [], float(HEIGHT)
    order = sorted(range(len(curves)), key=lambda k: curves[k].points[-1][1])
    for k in order:
        curve = curves[k]
        dots = [place(x, y) for x, y in curve.points if y]
        if not dots:
            continue
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in dots)
        parts.append(f'<path d="{path}" stroke="{COLOURS[k]}" stroke-dasharray="{DASHES[k]}"/>')
        last = min(dots[-1][1], last - 15)
        parts.append(text(WIDTH - RIGHT + 8, last + 4, f"{curve.name:.26}"))
    return parts


def _grid(place: Place, x0: float, x1: float, y0: int, y1: int) -> list[str]:
    """Lines at powers of 2, at most about ten each way, and what they stand for."""
    parts = []
    for power in range(y0, y1 + 1, ceil((y1 - y0 + 1) / 10)):
        _, y = place(2**x0, 2**power)
        parts.append(line("grid", LEFT, y, WIDTH - RIGHT, y) + text(LEFT - 8, y + 4, size(2**power), "end"))
    for power in range(ceil(x0), floor(x1) + 1, ceil((floor(x1) - ceil(x0) + 1) / 8)):
        x, _ = place(2**power, 2**y0)
        label = f"{2**power // 1024:,}k" if power >= 10 else str(2**power)
        parts.append(line("grid", x, TOP, x, HEIGHT - BOTTOM) + text(x, HEIGHT - BOTTOM + 18, label, "middle"))
    parts.append(line("axis", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "tokens of context (k = 1,024)", "middle"))
    return parts


def line(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, said: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'


def write(picture: str, path: Path) -> None:
    """Writes the picture as SVG, or as a page around it where the file is named so."""
    if path.suffix not in (".svg", ".html"):
        raise InputError(f"`--plot` is {path.name[:60]!r}, expected a file that ends in .svg or .html")
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>kvtally size</title>\n{picture}</html>\n'
    write_whole(path, picture if path.suffix == ".svg" else page, "--plot")
