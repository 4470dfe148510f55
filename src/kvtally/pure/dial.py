"""What each precision of K and V does to the output of a small decoder, run in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Mlp
from kvtally.core.passes import cached
from kvtally.pure.count_executed import Execution, execute
from kvtally.pure.kv_cache import Head, KVCache
from kvtally.pure.meter import Meter
from kvtally.pure.round_by_hand import BY_HAND, read_back
from kvtally.pure.size import size

EMBEDDED = Decoder(
    name="a small decoder with random weights",
    hidden_size=16,
    vocab_size=32,
    layers=(Layer(mixer=Attention(num_heads=2, num_kv_heads=1, head_dim=32), mlp=Mlp(width=24)),) * 2,
)
PARTS = ("k", "v", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one rounding does: the largest |logit difference| over all positions, and how many choose the same token."""

    largest: float
    same: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """One type: its bytes a token where K and V both have it, and its effect on K alone, V alone, and both."""

    dtype: str
    bytes_per_token: int
    k: Effect
    v: Effect
    both: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """The table of every type, for K, V and both: `positions` outputs, whose largest |logit| is `scale`.

    K and V are rounded as they are written, and every query reads them rounded, its own included; all else is
    Python's float, 64 bits. The token at each position is given, whatever was chosen before it.
    """

    decoder: str
    positions: int
    scale: float
    rows: tuple[Precision, ...]

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return {
            "decoder": self.decoder,
            "positions": self.positions,
            "scale": self.scale,
            "rows": [
                {"dtype": row.dtype, "bytes_per_token": row.bytes_per_token}
                | {p: {"largest": e.largest, "same": e.same} for p, e in zip(PARTS, effects(row), strict=True)}
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.decoder}: {self.positions} positions, largest logit {self.scale:.3g}"]
        for row in self.rows:
            told = (f"{p} {e.largest:.2g} ({e.same} same)" for p, e in zip(PARTS, effects(row), strict=True))
            lines.append(f"{row.dtype}, {row.bytes_per_token:,} B a token: {', '.join(told)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><th>{row.dtype}</th><td>{row.bytes_per_token:,}</td>"
            + "".join(f"<td>{e.largest:.2g}</td><td>{e.same}</td>" for e in effects(row))
            + "</tr>"
            for row in self.rows
        )
        head = "".join(f"<th>{p}: largest difference</th><th>same choice</th>" for p in PARTS)
        caption = f"{self.decoder}, {self.positions} positions, largest logit {self.scale:.3g}"
        return (
            f"<table><caption>{escape(caption)}</caption><tr><th>dtype</th><th>bytes a token</th>{head}</tr>"
            f"{body}</table>"
        )


def effects(row: Precision) -> tuple[Effect, Effect, Effect]:
    """The effects of `row` in the order of PARTS: K alone, V alone, both."""
    return row.k, row.v, row.both


def dial(dtypes: Iterable[str] = tuple(BY_HAND), *, tokens: int = 20, seed: int = 0) -> Dial:
    """The largest logit difference, absolute, and the choices kept, for each of `dtypes` on the embedded decoder.

    The decoder has 2 layers of one KV head of 32 and random weights, so that neither K nor V has the outlier
    channels of a trained model: `kvtally round MODEL` measures a real one. `tokens` is how many it reads, one
    at a time; errors are those of `read_back`.

    >>> found = dial(["fp16", "int2"], tokens=5)
    >>> [row.bytes_per_token for row in found.rows]  # 2 layers, K and V: 4 rows of 32 * 2, of 32 / 4 + 4
    [256, 48]
    >>> found.rows[0].both.largest < found.rows[1].both.largest
    True
    """
    names = tuple(dtypes)
    for name in names:
        require_one_of("dtype", name, BY_HAND)
    if not names:
        raise InputError("`dtypes` is empty, expected one or more", hint=f"known: {', '.join(BY_HAND)}")
    require_int("tokens", tokens, least=1)
    exact = _run(KVCache(), tokens, seed)
    rows = []
    for name in names:
        k, v, both = (_effect(exact, _run(_rounding(name, part), tokens, seed)) for part in PARTS)
        rows.append(
            Precision(dtype=name, bytes_per_token=size(EMBEDDED, 1, dtype=name).bytes_held, k=k, v=v, both=both)
        )
    scale = max(abs(logit) for output in exact.outputs for logit in output)
    return Dial(decoder=EMBEDDED.name, positions=len(exact.outputs), scale=scale, rows=tuple(rows))


def _run(cache: KVCache, tokens: int, seed: int) -> Execution:
    """All tokens, one at a time."""
    return execute(EMBEDDED, cached(1, tokens), seed=seed, cache=cache, meter=Meter(counting=False))


def _rounding(name: str, part: str) -> KVCache:
    """A cache whose K, V or both have the type `name`."""

    def stored(heads: list[Head]) -> list[Head]:
        return [
            Head(
                [read_back(name, key) if part != "v" else key for key in head.keys],
                [read_back(name, value) if part != "k" else value for value in head.values],
            )
            for head in heads
        ]

    return KVCache(stored=stored)


def _effect(exact: Execution, found: Execution) -> Effect:
    pairs = list(zip(exact.outputs, found.outputs, strict=True))
    return Effect(
        largest=max(abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True)),
        same=sum(_choice(left) == _choice(right) for left, right in pairs),
    )


def _choice(logits: tuple[float, ...]) -> int:
    return max(range(len(logits)), key=logits.__getitem__)
