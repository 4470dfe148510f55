"""What `round` is asked, and its answer: one exact pass, and a rounded one for each way to keep K and V."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvtally.core.errors import InputError
from kvtally.core.rounded import Rounded

if TYPE_CHECKING:
    from kvtally.live.adapter import Adapter
    from kvtally.live.rounding_cache import Kept

DTYPES = ("bf16", "fp8_e4m3", "int8", "int4")
BOTH, K_ONLY, V_ONLY, BY_TOKEN, BY_CHANNEL = "K and V", "K only", "V only", "K by token", "K by channel"
COMPARISON = "K by token and by channel"
RANDOM = 64  # tokens where there is no text
COMPARED = 32  # tokens of a group by channel


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundQuestion:
    """A model by its name, a text or a number of random tokens, and the types that its cache is kept in."""

    model: str
    text: str | None = None
    source: str = ""  # where the text is from
    tokens: int | None = None
    dtypes: tuple[str, ...] = DTYPES
    k_dtype: str | None = None
    v_dtype: str | None = None
    state_dtype: str | None = None
    group: int | str | None = None
    axis: str = "token"
    residual: int = 0
    chunk: int | None = None
    full_size: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rounded pass: the type asked for, what of the cache has it, and what came of it."""

    dtype: str
    part: str
    rounded: Rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAnswer:
    """All rows, in the order they are shown; `compared` are those of K by token against K by channel."""

    name: str
    text: str
    rows: tuple[Row, ...]
    compared: tuple[Row, ...] = ()
    conventions: Mapping[str, str | int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return {
            "name": self.name,
            "text": self.text,
            "conventions": dict(self.conventions),
            **{
                name: [{"dtype": r.dtype, "part": r.part, **r.rounded.to_dict()} for r in rows]
                for name, rows in (("rows", self.rows), ("compared", self.compared))
            },
        }


def answer(question: RoundQuestion, progress: Callable[[int, int], None] | None = None) -> RoundAnswer:
    """Runs every pass that was asked for, side by side over the text."""
    ways = _ways(question)
    from kvtally.live.checked_model import load
    from kvtally.live.refusal import refused
    from kvtally.live.rounding import round_caches, roundable

    found = load(question.model, dtype="float32", full_size=question.full_size)
    with refused("is no model that can be rounded", where=question.model):
        adapter = roundable(found.model)
    ids, text = _ids(question, adapter, weights=found.weights)
    more, left_out = _compared(question, adapter, ids)
    ran = round_caches(found.model, ids, [how for *_, how in (*ways, *more)], chunk=question.chunk, progress=progress)
    rows = [
        Row(dtype=name, part=part, rounded=rounded)
        for (name, part, _), rounded in zip((*ways, *more), ran, strict=True)
    ]
    weights = "widened to float32" if found.weights else "random, or of your own module"
    return RoundAnswer(
        name=question.model,
        text=text,
        rows=tuple(rows[: len(ways)]),
        compared=tuple(rows[len(ways) :]),
        conventions={**ran[0].conventions, "weights": weights, **left_out},
    )


def _ways(question: RoundQuestion) -> list[tuple[str, str, Kept]]:
    """Each type for K and V, for K alone and for V alone."""
    from kvtally.live.rounding_cache import kept

    given: dict[str, Any] = {
        "state_dtype": question.state_dtype,
        "group": question.group,
        "residual": question.residual,
    }
    by: dict[str, Any] = {"axis": question.axis}
    if not (question.k_dtype or question.v_dtype):
        each = [(name, name, name) for name in question.dtypes]
    else:
        k, v = question.k_dtype, question.v_dtype
        each = [(" / ".join(name or "exact" for name in (k, v)), k or "", v or "")]
    ways = []
    for name, k, v in each:
        if k and v:
            ways.append((name, BOTH, kept(k_dtype=k, v_dtype=v, **given, **by)))
        if k:
            ways.append((name, K_ONLY, kept(k_dtype=k, **given, **by)))
        if v:
            ways.append((name, V_ONLY, kept(v_dtype=v, **given, **({} if k else by))))
    return ways


def _compared(
    question: RoundQuestion, adapter: Adapter, ids: Any
) -> tuple[list[tuple[str, str, Kept]], dict[str, str]]:
    """K by token and by channel, in groups of the same size and with as many exact tokens, for types with both.

    Nothing where the text or a window is shorter than a group, or where an axis or a type of K or V was chosen; where
    a group does not divide a row of K, a convention that says so.
    """
    from kvtally.live.rounding import key_widths
    from kvtally.live.rounding_cache import kept
    from kvtally.live.schemes import GROUPED, scheme

    group = question.group if isinstance(question.group, int) else COMPARED
    shortest = min((ids.shape[1], *(w - 1 for w in adapter.windows)))
    names = [name for name in question.dtypes if scheme(name).name in GROUPED]
    chosen = question.k_dtype or question.v_dtype or question.axis != "token" or question.residual
    if chosen or not names or shortest <= group:
        return [], {}
    if odd := [str(width) for width in sorted(key_widths(adapter, ids)) if width % group]:
        return [], {COMPARISON: f"left out: a row of K is {' or '.join(odd)} wide, a group {group}"}
    return [
        (name, part, kept(k_dtype=scheme(name).name, group=group, residual=group, axis=axis))
        for name in names
        for part, axis in ((BY_TOKEN, "token"), (BY_CHANNEL, "channel"))
    ], {}


def _ids(question: RoundQuestion, adapter: Adapter, *, weights: bool) -> tuple[Any, str]:
    """The token ids, and where they are from."""
    from kvtally.live.harness import token_ids
    from kvtally.live.text_ids import text_ids

    if question.text is not None:
        if not weights:
            raise InputError(
                "a text is given and there is no tokenizer, expected --tokens N for random tokens",
                where=question.model,
                hint="name a folder with weights and a tokenizer, a .gguf file or a Hugging Face id",
            )
        ids = text_ids(question.model, question.text)
        if question.tokens is not None and question.tokens > ids.shape[1]:
            raise InputError(f"`--tokens` is {question.tokens:,} and the text has {ids.shape[1]:,}, expected no more")
        return ids[:, : question.tokens], question.source
    if weights and question.tokens is None:
        raise InputError(
            "a model with weights is given and no text, expected --text FILE or --prompt TEXT",
            where=question.model,
            hint="--tokens N takes N random tokens, of which little can be learned",
        )
    return token_ids(adapter.vocab_size, adapter.special, adapter.device)(question.tokens or RANDOM), "random tokens"
