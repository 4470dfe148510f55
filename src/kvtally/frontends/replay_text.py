"""The answer of `replay` as text: five lines first, then what memory buys, then why."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from kvtally.frontends.as_json import as_json
from kvtally.frontends.markdown import markdown_table
from kvtally.frontends.render import BOLD, DIM, NARROW, number, paint, size
from kvtally.frontends.replay_question import ReplayAnswer
from kvtally.traffic.why import Why

TITLE = "What would a prefix cache save on this traffic?"
LABEL = 12  # columns of the label of a line
MOST_PARTS = 10
Row = tuple[str, ...]


def percent(part: int, whole: int) -> str:
    """The share, to a tenth of a per cent.

    >>> percent(1, 3), percent(0, 0)
    ('33.3 %', '0.0 %')
    """
    return f"{100 * part / whole if whole else 0:.1f} %"


def duration(seconds: float) -> str:
    """Seconds in the largest unit that leaves at least 1.

    >>> duration(60), duration(300), duration(5400)
    ('1 min', '5 min', '1.5 h')
    """
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.4g} {name}"
    return f"{seconds:.4g} s"


def about(answer: ReplayAnswer) -> str:
    """What was read, and the rules of the cache where there are any."""
    named = Path(answer.traces[0]).name + (f" and {len(answer.traces) - 1} more" if len(answer.traces) > 1 else "")
    sessions = f", {answer.sessions:,} sessions" if answer.sessions > 1 else ""
    ttl, least = answer.question.ttl, answer.question.min_prefix
    rules = [] if ttl is None else [f"dropped after {duration(ttl)} unused"]
    if answer.question.replicas > 1:
        rules.append(f"{answer.question.replicas:,} replicas, {answer.question.route}, capacities each")
    rules += [f"hits of at least {least:,} blocks"] if least > 1 else []
    return (
        f"{named}: {answer.why.requests:,} requests{sessions}, {number(answer.reuse.input_tokens, 9)} prompt tokens, "
        f"blocks of {answer.why.block_size:,}, over {duration(answer.seconds)}" + "".join(f"; {one}" for one in rules)
    )


def first_lines(answer: ReplayAnswer) -> list[Row]:
    """What reuse is possible, what memory buys it, and the three things that break it, worst first."""
    r = answer.reuse
    possible = (
        f"{percent(r.possible, r.accesses)} of blocks seen before: compute {number(r.states(), 7)} of "
        f"{number(r.input_tokens, 7)} tokens"
    )
    memory = _memory(answer)
    if not r.possible:
        memory = "none of any size hits: no prompt begins as another did"
    worst = sorted(_breaks(answer.why), key=lambda one: -one[0])[:3]
    return [("possible", possible), ("memory", memory), *(line for _, line in worst)]


def _memory(answer: ReplayAnswer) -> str:
    """What finds 90 % and all of what is possible: bytes where a model is named, else tokens."""
    most, everything = answer.at(90), answer.at(100)
    if most.price is not None and everything.price is not None:
        return f"{size(most.price.bytes)} finds 90 % of that, {size(everything.price.bytes)} all"
    tokens = [number(point.blocks * answer.why.block_size, 7) for point in (most, everything)]
    return f"room for {tokens[0]} tokens finds 90 % of that, for {tokens[1]} all"


def _breaks(w: Why) -> list[tuple[int, Row]]:
    """(tokens lost, line) of each thing that breaks reuse; what block size hides is taken at half its most."""
    (ttl, hits), *longer = w.within.items()
    kept = f"kept {duration(ttl)} unused: {percent(hits, w.accesses)} hit" + "".join(
        f"; {duration(ttl)}: {percent(hits, w.accesses)}" for ttl, hits in longer
    )
    many = "1 request begins" if w.cold == 1 else f"{w.cold:,} requests begin"
    cold = f"{many} like none before: {percent(w.cold_accesses, w.accesses)} of blocks"
    times, hits = next(iter(w.coarser.items()))
    hidden = percent(w.floor_tokens, w.accesses * w.block_size)
    floor = f"hides at most {hidden} of tokens; at {times:,} tokens, {percent(hits, w.accesses)} hit"
    lines: list[tuple[int, Row]] = [
        ((w.hits - w.within[300]) * w.block_size, ("pauses", kept)),
        (w.cold_accesses * w.block_size, ("cold", cold)),
        (w.floor_tokens // 2, ("block size", floor)),
    ]
    if w.edits:
        e = w.edits
        lost = percent(e.blocks, w.accesses)
        said = f"{percent(e.edited, w.requests)} of requests rewrite earlier turns: {lost} of blocks"
        lines.append((e.blocks * w.block_size, ("edits", said)))
    return lines


def sections(answer: ReplayAnswer) -> list[tuple[str, list[Row]]]:
    """Tables under their titles; the first row of each is its head."""
    q = answer.question
    found = [
        (f"What memory buys ({q.decoder.name}, {q.dtype})" if q.decoder else "What memory buys", _curve(answer)),
        ("Where prompts first differ from all before", _depths(answer.why)),
    ]
    if answer.ruled:
        rules: list[Row] = [("rule", "blocks", "hit share")]
        rules += [(one.rule, f"{one.blocks:,}", percent(one.hits, answer.reuse.accesses)) for one in answer.ruled]
        found.insert(1, ("Other rules, at the capacities given", rules))
    if answer.parts:
        rows = [(p.name[:32], f"{p.requests:,}", f"{p.accesses:,}", percent(p.hits, p.accesses)) for p in answer.parts]
        title = f"By {q.by}, one cache for all"
        if len(rows) > MOST_PARTS:
            title += f": the {MOST_PARTS} that ask for most, of {len(rows):,}"
        found.append((title, [(str(q.by), "requests", "blocks", "hit share"), *rows[:MOST_PARTS]]))
    return found


def _curve(answer: ReplayAnswer) -> list[Row]:
    """Capacities in blocks, what they hit, what is left to compute, and what that costs the model."""
    priced = answer.question.decoder is not None
    rows: list[Row] = [
        ("of possible", "blocks", "hit share", "tokens to compute", *(("bytes", "MACs") if priced else ()))
    ]
    none = ("no cache", "0", percent(0, 1), number(answer.reuse.input_tokens, 11))
    first = answer.points[0].price
    rows.append((*none, *(("0", number(first.macs_uncached, 7)) if first else ())))
    for p in answer.points:
        cells = (f"{p.share} %", f"{p.blocks:,}", percent(p.hits, answer.reuse.accesses), number(p.states, 11))
        rows.append((*cells, *((size(p.price.bytes), number(p.price.macs, 7)) if p.price else ())))
    return rows


def _depths(w: Why) -> list[Row]:
    rows: list[Row] = [("tokens shared", "requests", "share")]
    rows += [("nowhere: all seen", f"{w.whole:,}", percent(w.whole, w.requests))] if w.whole else []
    return rows + [
        (f"{low:,} to {high - 1:,}" if low else "none", f"{n:,}", percent(n, w.requests)) for low, high, n in w.diverge
    ]


def as_text(answer: ReplayAnswer, form: str, *, on: bool) -> str:
    """The answer in one of the formats: table, json, csv, md."""
    if form == "json":
        return as_json("replay", answer.to_dict())
    if form == "csv":
        return _csv(answer)
    if form == "md":
        return _markdown(answer)
    lines = [paint(TITLE, BOLD, on=on), *wrap(about(answer), NARROW), ""]
    for label, said in first_lines(answer):
        begun = wrap(said, NARROW - LABEL)
        lines += [f"{label:<{LABEL}}{begun[0]}", *(" " * LABEL + more for more in begun[1:])]
    for title, rows in sections(answer):
        lines += ["", paint(title, BOLD, on=on), *_aligned(rows, on=on)]
    for note in answer.notes:
        lines += ["", *(paint(line, DIM, on=on) for line in wrap(f"note: {note}", NARROW))]
    return "\n".join(lines)


def _aligned(rows: Sequence[Row], *, on: bool) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for n, row in enumerate(rows):
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append(paint("  " + "   ".join((row[0].ljust(widths[0]), *numbers)), "" if n else DIM, on=on))
    return lines


def _csv(answer: ReplayAnswer) -> str:
    written = io.StringIO()
    sheet = csv.writer(written, lineterminator="\n")
    sheet.writerow(("rule", "share_of_possible", "blocks", "hits", "accesses", "states", "bytes", "macs"))
    for p in answer.points:
        priced = (p.price.bytes, p.price.macs) if p.price else ("", "")
        sheet.writerow(("lru", p.share, p.blocks, p.hits, answer.reuse.accesses, p.states, *priced))
    for one in answer.ruled:
        sheet.writerow((one.rule, "", one.blocks, one.hits, answer.reuse.accesses, "", "", ""))
    return written.getvalue().rstrip("\n")


def _markdown(answer: ReplayAnswer) -> str:
    lines = [f"## {TITLE}", "", about(answer), "", *(f"- **{label}**: {said}" for label, said in first_lines(answer))]
    for title, (head, *rows) in sections(answer):
        lines += ["", f"### {title}", "", markdown_table(head, rows, numbers=True)]
    return "\n".join([*lines, *(f"\n{note}" for note in answer.notes)])
