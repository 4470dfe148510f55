"""What it cost: Term, Tally, compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.passes import PHASES
from kvtally.core.span import KERNELS


class Term(StrEnum):
    """What a multiplication was made for, in Hugging Face's words, in the order of a forward pass.

    >>> Term.qk, Term.qk == "qk"
    (<Term.qk: 'qk'>, True)
    """

    q_proj = "q_proj"
    k_proj = "k_proj"
    v_proj = "v_proj"
    q_a_proj = "q_a_proj"  # latent attention
    q_b_proj = "q_b_proj"
    kv_a_proj = "kv_a_proj_with_mqa"
    kv_b_proj = "kv_b_proj"
    q_absorb = "q_absorb"  # kv_b_proj's key half, applied to the query instead of to every key
    v_absorb = "v_absorb"  # kv_b_proj's value half, applied to the mixed latent
    compress_proj = "compress_proj"  # what compressed entries are pooled from, and the weights of pooling
    index_q_proj = "index_q_proj"  # an indexer, which chooses the keys that attention scores
    index_k_proj = "index_k_proj"
    index_weights_proj = "index_weights_proj"
    index_qk = "index_qk"
    index_sum = "index_sum"  # scores of all index heads, weighted and summed
    qk = "qk"
    pv = "pv"
    o_proj = "o_proj"
    o_a_proj = "o_a_proj"  # output projection of low rank, by groups of heads
    o_b_proj = "o_b_proj"
    in_proj = "in_proj"  # recurrent layers
    conv1d = "conv1d"
    x_proj = "x_proj"
    dt_proj = "dt_proj"
    state_update = "state_update"
    state_read = "state_read"
    out_proj = "out_proj"
    cross_q_proj = "cross_q_proj"  # attention to an encoder
    cross_k_proj = "cross_k_proj"
    cross_v_proj = "cross_v_proj"
    cross_qk = "cross_qk"
    cross_pv = "cross_pv"
    cross_o_proj = "cross_o_proj"
    router = "router"
    gate_proj = "gate_proj"
    up_proj = "up_proj"
    down_proj = "down_proj"
    extra_proj = "extra_proj"  # matrices of a layer beside mixer and MLP
    surplus = "surplus"  # what transformers multiplies and the model does not need: under the dense kernel only
    embed_proj = "embed_proj"  # outside the layers: from the embedding on, for every token
    head_proj = "head_proj"  # before the output head, for every row of logits
    lm_head = "lm_head"


CELLS = ("k_write", "v_write", "k_read", "v_read", "state")

NOT_COUNTED = (
    "norms",
    "softmax",
    "positions (rotary or learned)",
    "activations and element-wise products",
    "embedding look-up",
)

Cell = tuple[str, int | None, str]  # phase, layer (None: outside the layers), term or cell of the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a list of passes costs, in exact integers.

    `macs[phase, layer, term]` are multiply-accumulates: one MAC is one multiplication, FLOPs are
    twice that. `kv[phase, layer, cell]` are elements written to the cache, read from it, or of a
    recurrent state written. `states` are token states computed, `comparisons[phase, layer]`
    query-key pairs (not multiplied by heads), `kernel` the convention they were counted under,
    `road` how the numbers came about, `uncounted` what was seen and left out. Cells of zero are
    not stored.

    >>> t = Tally(macs={("decode", 0, Term.q_proj): 12}, kernel="causal", road="by hand")
    >>> (t + t).flops, (3 * t).by("phase")
    (48, {'decode': 36})
    """

    macs: Mapping[Cell, int] = field(default_factory=dict)
    kv: Mapping[Cell, int] = field(default_factory=dict)
    states: int = 0
    comparisons: Mapping[tuple[str, int | None], int] = field(default_factory=dict)
    kernel: str
    road: str
    uncounted: tuple[str, ...] = NOT_COUNTED

    def __post_init__(self) -> None:
        require_one_of("kernel", self.kernel, KERNELS)
        require_int("states", self.states, least=0)
        for name in ("macs", "kv", "comparisons"):
            table = getattr(self, name)
            for cell, value in table.items():
                require_int(f"{name}[{', '.join(map(str, cell))}]", value, least=0)
                require_one_of("phase", cell[0], PHASES)
            object.__setattr__(self, name, {cell: table[cell] for cell in sorted(table, key=_order) if table[cell]})

    @property
    def total(self) -> int:
        """All multiplications (MACs)."""
        return sum(self.macs.values())

    @property
    def flops(self) -> int:
        """Floating-point operations: two for each MAC, one multiplication and one addition."""
        return 2 * self.total

    @property
    def pairs(self) -> int:
        """All query-key pairs, over phases and layers."""
        return sum(self.comparisons.values())

    def by(self, axis: str) -> dict[Any, int]:
        """MACs summed by `"phase"`, `"layer"` or `"term"`, in the order of a forward pass."""
        require_one_of("by", axis, ("phase", "layer", "term"))
        place = ("phase", "layer", "term").index(axis)
        return _sums(self.macs, place)

    def cells(self) -> dict[str, int]:
        """Elements moved, summed by cell of the cache: written, read, state."""
        return _sums(self.kv, 2)

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        _same_kernel(self, other)
        return Tally(
            macs=_merged(self.macs, other.macs),
            kv=_merged(self.kv, other.kv),
            states=self.states + other.states,
            comparisons=_merged(self.comparisons, other.comparisons),
            kernel=self.kernel,
            road=self.road if self.road == other.road else f"{self.road} + {other.road}",
            uncounted=tuple(dict.fromkeys((*self.uncounted, *other.uncounted))),
        )

    def __mul__(self, batch: int) -> Tally:
        """The tally of `batch` sequences like this one: a batch is a sum of tallies."""
        require_int("batch", batch, least=1)
        return Tally(
            macs={cell: batch * n for cell, n in self.macs.items()},
            kv={cell: batch * n for cell, n in self.kv.items()},
            states=batch * self.states,
            comparisons={cell: batch * n for cell, n in self.comparisons.items()},
            kernel=self.kernel,
            road=self.road,
            uncounted=self.uncounted,
        )

    __rmul__ = __mul__

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it: exact integers, every convention a field."""
        return {
            "states": self.states,
            "comparisons": [{"phase": p, "layer": i, "pairs": n} for (p, i), n in self.comparisons.items()],
            "macs": [{"phase": p, "layer": i, "term": str(t), "macs": n} for (p, i, t), n in self.macs.items()],
            "kv": [{"phase": p, "layer": i, "cell": c, "elements": n} for (p, i, c), n in self.kv.items()],
            "total_macs": self.total,
            "kernel": self.kernel,
            "road": self.road,
            "uncounted": list(self.uncounted),
        }

    def rows(self) -> list[tuple[str, list[int]]]:
        """The printed table: one row a term, its MACs by phase and in all."""
        table: dict[str, list[int]] = {}
        for (phase, _, term), n in self.macs.items():
            row = table.setdefault(str(term), [0] * (len(PHASES) + 1))
            row[PHASES.index(phase)] += n
            row[-1] += n
        return list(table.items())

    def __str__(self) -> str:
        head = ("multiplications", *PHASES, "total")
        body = [(name, *(f"{n:,}" for n in row)) for name, row in self.rows()]
        sums = (f"{self.by('phase').get(p, 0):,}" for p in PHASES)
        lines = [head, *body, ("total", *sums, f"{self.total:,}")]
        widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
        table = "\n".join(
            "  ".join(t.ljust(w) if k == 0 else t.rjust(w) for k, (t, w) in enumerate(zip(line, widths, strict=True)))
            for line in lines
        )
        facts = f"token states {self.states:,} · comparisons {self.pairs:,} ({self.kernel}) · road: {self.road}"
        return f"{table}\n{facts}\nnot counted: {', '.join(self.uncounted)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        head = "".join(f"<th>{h}</th>" for h in ("multiplications", *PHASES, "total"))
        body = "".join(
            f"<tr><th>{escape(name)}</th>" + "".join(f"<td>{n:,}</td>" for n in row) + "</tr>"
            for name, row in self.rows()
        )
        caption = f"{self.states:,} token states, {self.pairs:,} comparisons ({self.kernel}), {self.road}"
        return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One cell in which two tallies differ: which table, which cell, and both values, in the cell's own unit.

    >>> print(Difference(table="macs", cell=("decode", 0, Term.k_proj), left=4, right=8))
    macs[decode, 0, k_proj]: 4 against 8 (+4)
    """

    table: str
    cell: tuple[str | int | None, ...]
    left: int
    right: int

    def __str__(self) -> str:
        place = ", ".join("outside layers" if part is None else str(part) for part in self.cell)
        return f"{self.table}[{place}]: {self.left:,} against {self.right:,} ({self.right - self.left:+,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many cells two tallies were compared in, and the cells in which they differ."""

    cells: int
    differences: tuple[Difference, ...]
    left: str
    right: str

    @property
    def agree(self) -> bool:
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        rows = [{"table": d.table, "cell": list(d.cell), "left": d.left, "right": d.right} for d in self.differences]
        return {"agree": self.agree, "cells": self.cells, "left": self.left, "right": self.right, "differences": rows}

    def __str__(self) -> str:
        if self.agree:
            return f"agree: {self.cells:,} cells, {self.left} = {self.right}"
        head = f"differ: {len(self.differences):,} of {self.cells:,} cells, {self.left} against {self.right}"
        return "\n".join([head, *(f"  {d}" for d in self.differences)])


def compare(left: Tally, right: Tally) -> Comparison:
    """The cells in which two tallies differ: multiplications, cache elements, comparisons, states.

    A cell that one side lacks counts as 0 there. Tallies of different kernels are refused.

    >>> one = Tally(macs={("decode", 0, Term.k_proj): 4}, kernel="causal", road="closed")
    >>> two = Tally(macs={("decode", 0, Term.k_proj): 8}, kernel="causal", road="traced")
    >>> print(compare(one, two))
    differ: 1 of 2 cells, closed against traced
      macs[decode, 0, k_proj]: 4 against 8 (+4)
    """
    _same_kernel(left, right)
    cells, differences = 1, []
    if left.states != right.states:
        differences.append(Difference(table="states", cell=(), left=left.states, right=right.states))
    for table in ("macs", "kv", "comparisons"):
        a, b = getattr(left, table), getattr(right, table)
        keys = sorted(a.keys() | b.keys(), key=_order)
        cells += len(keys)
        differences += [
            Difference(table=table, cell=tuple(k), left=a.get(k, 0), right=b.get(k, 0))
            for k in keys
            if a.get(k, 0) != b.get(k, 0)
        ]
    return Comparison(cells=cells, differences=tuple(differences), left=left.road, right=right.road)


_RANK = {str(name): rank for rank, name in enumerate((*PHASES, *Term, *CELLS))}


def _order(cell: tuple[Any, ...]) -> tuple[Any, ...]:
    phase, layer, *rest = cell
    return (_RANK[phase], layer is None, layer or 0, *((_RANK.get(str(r), len(_RANK)), str(r)) for r in rest))


def _sums(table: Mapping[Cell, int], place: int) -> dict[Any, int]:
    sums: Counter[Any] = Counter()
    for cell, n in table.items():
        sums[cell[place]] += n
    return {key: sums[key] for key in sorted(sums, key=lambda k: (k is None, _RANK.get(str(k), 0), k or 0))}


def _merged(a: Mapping[Any, int], b: Mapping[Any, int]) -> dict[Any, int]:
    return dict(Counter(a) + Counter(b))


def _same_kernel(a: Tally, b: Tally) -> None:
    if a.kernel != b.kernel:
        raise InputError(
            f"one tally counts `{a.kernel}` pairs and the other `{b.kernel}`, expected the same kernel",
            hint="count both with the same kernel",
        )
