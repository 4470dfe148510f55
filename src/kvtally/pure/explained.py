"""What a line of a log turned out to be, and how its numbers are read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kvtally.core.errors import require_int
from kvtally.pure.engine_vllm import VllmRules
from kvtally.pure.size import CacheTypes

# How numbers look in lines of logs; longer ones are no numbers that an engine prints.
COUNT, DECIMAL = r"\d[\d,]{0,18}", r"\d{1,12}(?:\.\d{1,6})?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """What is known of the run beside its log: types, devices, block size, tokens, bytes for the cache.

    `rules` are vLLM's own choices. `context` is the text around the line, in which other known lines may say
    more.
    """

    types: CacheTypes
    tensor_parallel: int = 1
    block_size: int | None = None
    tokens: int | None = None
    memory: int | None = None
    rules: VllmRules
    context: str = ""

    def __post_init__(self) -> None:
        require_int("tokens", 1 if self.tokens is None else self.tokens, least=1)
        require_int("memory", 1 if self.memory is None else self.memory, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the line says: the `quantity`, the number `printed` and the same `computed` from the decoder.

    `status`: exact (nothing was assumed), consistent (a number was printed rounded, or one integer was
    inferred), differs. `arithmetic` shows the multiplications, `notes` what the number is not, and by how
    much and why it differs.

    >>> print(Explanation(line="…", engine="vLLM", quantity="blocks", printed="4", computed="4", status="exact",
    ...                   arithmetic=("64 // 16 = 4",)))
    vLLM: blocks
      printed   4
      computed  4: exact
      64 // 16 = 4
    """

    line: str
    engine: str
    quantity: str
    printed: str
    computed: str
    status: str
    arithmetic: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the decoder gives what is printed."""
        return self.status != "differs"

    def to_dict(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "engine": self.engine,
            "quantity": self.quantity,
            "printed": self.printed,
            "computed": self.computed,
            "status": self.status,
            "arithmetic": list(self.arithmetic),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        head = (
            f"{self.engine}: {self.quantity}",
            f"  printed   {self.printed}",
            f"  computed  {self.computed}: {self.status}",
        )
        return "\n".join((*head, *(f"  {text}" for text in (*self.arithmetic, *self.notes))))


def whole(text: str) -> int:
    """A whole number as logs print it, with or without commas.

    >>> whole("1,048,576")
    1048576
    """
    return int(text.replace(",", ""))


def interval(text: str, unit: int = 1) -> tuple[Fraction, Fraction]:
    """What a rounded decimal can stand for, times `unit`: half of its last digit below and above, both included.

    >>> interval("3.81", 100)
    (Fraction(761, 2), Fraction(763, 2))
    """
    half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
    value = Fraction(text)
    return (value - half) * unit, (value + half) * unit


def off(printed: Fraction | int, computed: Fraction | int) -> str:
    """By how much the printed number is off the computed one, in percent or times.

    >>> off(99, 100), off(300, 100)
    ('1.0% less than computed', '3.00 times what is computed')
    """
    if not computed:
        return "nothing is computed"
    ratio = Fraction(printed) / Fraction(computed)
    if not Fraction(1, 2) < ratio < 2:
        return f"{float(ratio):.2f} times what is computed"
    share = float(abs(ratio - 1)) * 100
    return f"{share:.1f}% {'less' if ratio < 1 else 'more'} than computed"
