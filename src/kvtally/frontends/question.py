"""What `count` is asked, and the two sides of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, require_int, require_one_of
from kvtally.core.passes import LONGEST, LOOPS, Pass, cached, chunked, conversation, edited, uncached
from kvtally.core.span import KERNELS
from kvtally.core.tally import Tally
from kvtally.pure.count_closed import count

ELEMENT_BYTES = 2  # fp16 and bf16


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Two lists of passes of one decoder to be priced side by side.

    `edit_at`, `turns` and `chunk` (one of them at most) choose which; without them it is the cache
    itself, off and on. `loop` names the uncached loop.
    """

    decoder: Decoder
    prompt: int
    new: int
    kernel: str = "causal"
    loop: str = "forward"
    batch: int = 1
    edit_at: int | None = None
    turns: tuple[tuple[int, int], ...] = ()
    chunk: int | None = None

    def __post_init__(self) -> None:
        require_one_of("kernel", self.kernel, KERNELS)
        require_one_of("uncached", self.loop, LOOPS)
        require_int("batch", self.batch, least=1, most=LONGEST)
        if self.context > LONGEST:
            asked = "`--turns`" if self.turns else f"`--prompt` {self.prompt:,} and {self.new:,} new tokens"
            raise InputError(f"{asked} make a context of {self.context:,} tokens, expected at most {LONGEST:,}")

    @property
    def kind(self) -> str:
        """What the two sides differ in: `cache`, `edit`, `turns` or `chunk`."""
        asked = {"edit": self.edit_at is not None, "turns": bool(self.turns), "chunk": self.chunk is not None}
        return next((kind for kind, given in asked.items() if given), "cache")

    @property
    def context(self) -> int:
        """Tokens that the cache covers at the end: the last generated one was never fed to the model."""
        return sum(user + new for user, new in self.turns) - 1 if self.turns else self.prompt + self.new - 1

    def sides(self) -> tuple[tuple[str, tuple[Pass, ...]], tuple[str, tuple[Pass, ...]]]:
        """(name, passes) of the costly side and of the other."""
        whole = cached(self.prompt, self.new) if not self.turns else ()
        if self.edit_at is not None:
            kept = edited(self.prompt, self.edit_at, self.new)
            return ("all again", whole), (f"from {self.edit_at:,} on", kept)
        if self.turns:
            carried = conversation(self.turns, carried=True)
            return ("resent", conversation(self.turns, carried=False)), ("carried", carried)
        if self.chunk is not None:
            return ("one prefill", whole), (f"chunks of {self.chunk:,}", chunked(self.prompt, self.new, self.chunk))
        return ("without cache", uncached(self.prompt, self.new, loop=self.loop)), ("with cache", whole)

    def to_dict(self) -> dict[str, Any]:
        lengths = (
            {"turns": [list(turn) for turn in self.turns]} if self.turns else {"prompt": self.prompt, "new": self.new}
        )
        special = {
            "edit_at": self.edit_at,
            "chunk": self.chunk,
            "uncached": self.loop if self.kind == "cache" else None,
        }
        return {
            "kind": self.kind,
            "model": self.decoder.name,
            "layers": len(self.decoder.layers),
            "hidden_size": self.decoder.hidden_size,
            **lengths,
            **{name: value for name, value in special.items() if value is not None},
            "batch": self.batch,
            "kernel": self.kernel,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of an answer: what was run, what it costs, and the elements its cache holds at the end."""

    name: str
    passes: tuple[Pass, ...]
    tally: Tally
    held: int
    growth: int  # elements that one more token adds

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tally": self.tally.to_dict(),
            "cache": {
                "elements": self.held,
                "bytes_per_element": ELEMENT_BYTES,
                "bytes": self.held * ELEMENT_BYTES,
                "elements_per_further_token": self.growth,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Both sides of a question, counted by formula."""

    question: Question
    left: Side
    right: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it; ratios are left over right, None where the right side has none."""
        left, right = self.left.tally, self.right.tally
        pairs = {
            "states": (left.states, right.states),
            "comparisons": (left.pairs, right.pairs),
            "macs": (left.total, right.total),
        }
        return {
            "question": self.question.to_dict(),
            "sides": [side.to_dict() for side in self.sides],
            "ratios": {name: a / b if b else None for name, (a, b) in pairs.items()},
        }


def answer(question: Question) -> Answer:
    """Both sides of `question`, priced by formula.

    >>> from kvtally.core.decoder import lesson
    >>> a = answer(Question(decoder=lesson(), prompt=1, new=100, loop="lesson"))
    >>> a.left.tally.states, a.right.tally.states, a.right.held
    (5050, 100, 12800)
    """
    decoder, batch = question.decoder, question.batch
    held = batch * decoder.held(question.context)
    growth = batch * decoder.held(question.context + 1) - held

    def side(name: str, passes: tuple[Pass, ...]) -> Side:
        keeps = any(p.keep for p in passes)
        return Side(
            name=name,
            passes=passes,
            tally=batch * count(decoder, passes, kernel=question.kernel),
            held=held if keeps else 0,
            growth=growth if keeps else 0,
        )

    left, right = question.sides()
    return Answer(question=question, left=side(*left), right=side(*right))
