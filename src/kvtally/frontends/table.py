"""The rows that an answer is shown as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from kvtally.core.passes import PHASES
from kvtally.core.tally import Tally, Term
from kvtally.frontends.question import ELEMENT_BYTES, Answer

TITLES = {  # kind of question: what is asked, and what the saving is called
    "cache": ("What does a KV cache save?", "what the cache saves"),
    "edit": ("What does a changed token cost?", "what the kept prefix saves"),
    "turns": ("What does a cache carried from turn to turn save?", "what carrying it saves"),
    "chunk": ("What does chunked prefill change?", "once a token"),
}
PER_TOKEN: dict[str, tuple[Term, ...]] = {
    "to project": (Term.q_proj, Term.k_proj, Term.v_proj, Term.q_a_proj, Term.q_b_proj, Term.kv_a_proj,
                   Term.q_absorb, Term.v_absorb, Term.o_proj, Term.o_a_proj, Term.o_b_proj, Term.compress_proj,
                   Term.extra_proj, Term.embed_proj),
    "to index": (Term.index_q_proj, Term.index_k_proj, Term.index_weights_proj),
    "to recur": (Term.in_proj, Term.conv1d, Term.x_proj, Term.dt_proj, Term.state_update, Term.state_read,
                 Term.out_proj),
    "to cross-attend": (Term.cross_q_proj, Term.cross_k_proj, Term.cross_v_proj, Term.cross_qk, Term.cross_pv,
                        Term.cross_o_proj),
    "to route": (Term.router,),
    "in the MLP": (Term.gate_proj, Term.up_proj, Term.down_proj),
    "beyond need": (Term.surplus,),
    "for logits": (Term.head_proj, Term.lm_head),
}  # fmt: skip
PER_PAIR: dict[str, tuple[Term, ...]] = {
    "to expand latents": (Term.kv_b_proj,),
    "to choose keys": (Term.index_qk, Term.index_sum),
    "to score": (Term.qk,),
    "to mix": (Term.pv,),
}
GAIN, GROWTH, COST = "32", "33", "36"  # ANSI: green, yellow, cyan


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: what, and how much of it on the left and on the right."""

    label: str
    left: int
    right: int
    sized: bool = False  # bytes, not a count


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows under a title."""

    title: str
    rows: tuple[Row, ...]
    colour: str = ""


def sections(answer: Answer, by: str | None = None) -> tuple[Section, ...]:
    """The table of an answer: what is saved, what still grows, all of it by phase, and the cache."""
    middle = {"layer": _by_layer, "phase": _by_phase, "term": _by_term}[by] if by else _by_kind
    left, right = answer.left.tally, answer.right.tally
    phases = [Row(label=p, left=left.by("phase").get(p, 0), right=right.by("phase").get(p, 0)) for p in PHASES]
    everything = Row(label="total", left=left.total, right=right.total)
    rows = (everything,) if by else (*phases, everything)
    return (*middle(answer), Section(title="all multiplications", rows=_filled(rows)), _cost(answer))


def _by_kind(answer: Answer) -> tuple[Section, ...]:
    left, right = answer.left.tally, answer.right.tally
    a, b = left.by("term"), right.by("term")

    def rows(groups: dict[str, tuple[Term, ...]]) -> list[Row]:
        return [
            Row(label=f"multiplications {what}", left=sum(a.get(t, 0) for t in ts), right=sum(b.get(t, 0) for t in ts))
            for what, ts in groups.items()
        ]

    tokens = [Row(label="token states", left=left.states, right=right.states), *rows(PER_TOKEN)]
    pairs = [Row(label="comparisons", left=left.pairs, right=right.pairs), *rows(PER_PAIR)]
    if answer.question.kind == "chunk":
        titled = [("once a token", tokens, ""), ("once a pair of tokens", pairs, "")]
    else:
        saved = [row for row in tokens if row.left != row.right]
        equal = [row for row in tokens if row.left == row.right]
        still = "what still" if left.pairs == right.pairs else "what is saved, yet still"
        titled = [
            (TITLES[answer.question.kind][1], saved, GAIN),
            (f"{still} grows with every token", pairs, GROWTH),
            ("the same either way", equal, ""),
        ]
    return tuple(Section(title=t, rows=kept, colour=c) for t, rows_, c in titled if (kept := _filled(rows_)))


def _by_layer(answer: Answer) -> tuple[Section, ...]:
    a, b = answer.left.tally.by("layer"), answer.right.tally.by("layer")
    rows = []
    for (left, right, _), run in groupby({**a, **b}, key=lambda i: (a.get(i, 0), b.get(i, 0), i is None)):
        indices = list(run)
        rows.append(Row(label=_layers(indices), left=left, right=right))
    return (Section(title="multiplications by layer", rows=tuple(rows)),)


def _layers(indices: Sequence[int | None]) -> str:
    first, last = indices[0], indices[-1]
    if first is None:
        return "outside the layers"
    return f"layer {first}" if first == last else f"layers {first} to {last}, each"


def _by_phase(answer: Answer) -> tuple[Section, ...]:
    return tuple(
        Section(title=phase, rows=rows)
        for phase in PHASES
        if (rows := _filled(_moves(answer.left.tally, answer.right.tally, phase)))
    )


def _moves(left: Tally, right: Tally, phase: str) -> list[Row]:
    """One phase: multiplications, comparisons, elements moved."""

    def row(label: str, table: str, *names: str) -> Row:
        def total(tally: Tally) -> int:
            cells = getattr(tally, table).items()
            return sum(n for cell, n in cells if cell[0] == phase and (not names or cell[2] in names))

        return Row(label=label, left=total(left), right=total(right))

    return [
        row("multiplications", "macs"),
        row("comparisons", "comparisons"),
        row("cache elements written", "kv", "k_write", "v_write", "state"),
        row("cache elements read", "kv", "k_read", "v_read"),
    ]


def _by_term(answer: Answer) -> tuple[Section, ...]:
    a, b = dict(answer.left.tally.rows()), dict(answer.right.tally.rows())
    none = [0] * (len(PHASES) + 1)
    return tuple(
        Section(title=f"multiplications in {phase}", rows=rows)
        for k, phase in enumerate(PHASES)
        if (rows := _filled(Row(label=t, left=a.get(t, none)[k], right=b.get(t, none)[k]) for t in {**a, **b}))
    )


def _cost(answer: Answer) -> Section:
    left, right = answer.sides
    rows = (
        Row(label="cache elements", left=left.held, right=right.held),
        Row(label="cache size", left=left.held * ELEMENT_BYTES, right=right.held * ELEMENT_BYTES, sized=True),
        Row(label="more for the next token", left=left.growth * ELEMENT_BYTES, right=right.growth * ELEMENT_BYTES,
            sized=True),
    )  # fmt: skip
    return Section(title=f"what it costs, at {ELEMENT_BYTES} bytes an element (fp16, bf16)", rows=rows, colour=COST)


def _filled(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.left or row.right)
