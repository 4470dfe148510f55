"""The answer of `round` as a table, CSV, Markdown or JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from textwrap import wrap

from kvtally.core.rounded import Rounded
from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.round_question import BOTH, COMPARISON, RoundAnswer, Row

TITLE = "What does a cache of lower precision change?"
WIDTH = 80
OUTPUT = ("", "largest", "KL mean", "99.9 %", "same", "perplexity", "B/token", "fits")
KEPT = ("", "error of K", "worst layers", "error of V", "worst layers", "first change")
OUTLIERS = ("outlying channels of K", "times the median", "of its head's error")
NOTES = (
    "Largest: of all logit differences, by the largest logit. KL: divergence of the next token's distribution from the "
    "exact one, in nats, mean over positions and 99.9th percentile. Same: positions whose likeliest token "
    "stays. B/token: bytes of the cache of this text by its tokens, scales included; fits: times as many in the memory "
    "of 16 bits.",
    "Error of K and V: root mean square, relative. First change: of the likeliest token, its position, and by how much "
    "the exact run preferred it.",
)


def as_text(answer: RoundAnswer, form: str) -> str:
    """The answer in one of the formats."""
    if form == "json":
        return as_json("round", answer.to_dict())
    if form == "csv":
        return comma_separated(answer)
    tables = [(OUTPUT, output(answer.rows)), (KEPT, kept(answer.rows))]
    if answer.compared:
        tables.append((OUTPUT, output(answer.compared)))
    if outlying := outliers(answer):
        tables.append((OUTLIERS, outlying))
    if form == "md":
        return "\n\n".join(
            [
                f"**{TITLE}** {'; '.join(about(answer))}",
                *(markdown_table(*t, numbers=True) for t in tables),
                *notes(answer),
            ]
        )
    shown = [_aligned(*table) for table in tables]
    small = [line for note in notes(answer) for line in wrap(note, WIDTH - 4)]
    return "\n".join([TITLE, *about(answer), "", "\n\n".join(shown), "", *small])


def about(answer: RoundAnswer) -> list[str]:
    """What was run, in a few lines."""
    first = answer.rows[0].rounded
    within = [row.dtype for row in answer.rows if row.part == answer.rows[0].part and row.rounded.within]
    said = [
        f"{answer.name}: {first.tokens:,} tokens, {answer.text}; all but the cache in float32",
        f"exact: perplexity {first.perplexity_exact:.4f}, largest logit {first.agreement.scale:.4g}",
        f"within check's screen, {answer.conventions['tolerance']}: {', '.join(within) or 'none of these'}",
    ]
    return [line for text in said for line in wrap(text, WIDTH, break_on_hyphens=False)]


def output(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What each pass does to the output."""
    return [(label, *_output(row.rounded)) for label, row in _labelled(rows)]


def _labelled(rows: Sequence[Row]) -> Iterable[tuple[str, Row]]:
    """Each row with its label: the type, and below it in which part alone."""
    before = None
    for row in rows:
        whole = row.dtype if row.part == BOTH else f"{row.dtype}, {row.part}"
        yield (whole if row.dtype != before else f"  {row.part}"), row
        before = row.dtype


def _output(r: Rounded) -> tuple[str, ...]:
    change = (r.perplexity / r.perplexity_exact - 1) * 100 if r.perplexity_exact else 0.0
    return (
        f"{r.agreement.error:.1e}",
        f"{r.kl_mean:.1e}",
        f"{r.kl_99_9:.1e}",
        f"{100 * r.top1:.1f} %",
        f"{change:+.2f} %",
        "" if r.bytes_a_token is None else f"{float(r.bytes_a_token):,.0f}",
        "" if r.times is None else f"{float(r.times):.2f}×",
    )


def kept(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The error of what is kept, for each type of K and V."""
    return [(label, *_kept(row.rounded)) for label, row in _labelled(rows)]


def _kept(r: Rounded) -> tuple[str, ...]:
    def errors(part: str) -> tuple[str, str]:
        found = r.part(part)
        return ("", "") if found is None else (f"{found:.1e}", ", ".join(str(s.layer) for s in r.worst(part)))

    changed = r.changed
    return (*errors("k"), *errors("v"), f"{changed.position:,}, {changed.margin:.1e}" if changed else "none")


def outliers(answer: RoundAnswer) -> list[tuple[str, ...]]:
    """The largest channels of K, as the coarsest type meets them: its last row with K in it."""
    row = next((row for row in reversed(answer.rows) if row.rounded.channels), None)
    return [
        (f"layer {c.layer}, head {c.head}, channel {c.channel}", f"{c.times:.1f}×", f"{100 * c.error:.0f} %")
        for c in (row.rounded.channels if row else ())
    ]


def notes(answer: RoundAnswer) -> list[str]:
    """What the numbers mean and rest on."""
    more = []
    if answer.compared:
        size = answer.compared[0].rounded.conventions["residual"]
        more.append(f"{COMPARISON}: groups of {size} elements, the newest tokens exact, {size} at most, in both.")
    elif left_out := answer.conventions.get(COMPARISON):
        more.append(f"{COMPARISON}: {left_out}.")
    states = {row.rounded.conventions["states"] for row in answer.rows} - {"exact"}
    more += [f"States: {said}." for said in sorted(map(str, states))]
    bytes_ = str(answer.conventions["bytes"])
    more += [f"Bytes {bytes_}."] if bytes_.startswith("not counted") else []
    return [*NOTES, *more]


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its first column to the left."""
    widths = [max(len(line[k]) for line in (heads, *rows)) for k in range(len(heads))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in (heads, *rows)
    ]
    return "\n".join(lines)


def comma_separated(answer: RoundAnswer) -> str:
    """One line a pass, every figure in full; bytes and their ratio are exact."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = (
        "dtype", "part", "k", "v", "tokens", "verdict", "error", "max_abs", "mean_abs", "kl_mean", "kl_95", "kl_99_9",
        "top1", "first_changed", "margin", "perplexity_exact", "perplexity", "error_k", "error_v", "bytes_exact",
        "bytes_kept",
    )  # fmt: skip
    writer.writerow(heads)
    for row in (*answer.rows, *answer.compared):
        r, changed = row.rounded, row.rounded.changed
        first = (changed.position, changed.margin) if changed else ("", "")
        figures = (r.agreement.error, r.max_abs, r.mean_abs, r.kl_mean, r.kl_95, r.kl_99_9, r.top1)
        more = (r.perplexity_exact, r.perplexity, r.part("k"), r.part("v"), r.bytes_exact, r.bytes_kept)
        writer.writerow((row.dtype, row.part, r.k, r.v, r.tokens, r.agreement.verdict, *figures, *first, *more))
    return out.getvalue().rstrip("\n")
