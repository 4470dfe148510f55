"""What can go wrong, in few kinds."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from sys import float_info


class KvtallyError(Exception):
    """Base of every error kvtally raises on purpose; `exit_code` is what the command line returns.

    The text is `where: what was found, what was expected`, a blank line, `hint: what to do`.
    Inner code says what is wrong; the caller that knows the file adds the place with `at`.

    >>> print(InputError("`new` is -1, expected at least 1", hint="ask for one token or more").at("cached"))
    cached: `new` is -1, expected at least 1
    <BLANKLINE>
    hint: ask for one token or more
    """

    exit_code = 2

    def __init__(self, problem: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(problem)
        self.problem, self.hint, self.where = problem, hint, where

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.problem}" + (f"\n\nhint: {self.hint}" if self.hint else "")

    def at(self, where: str) -> KvtallyError:
        """The same error, said to have happened at `where`."""
        joined = f"{where}: {self.where}" if self.where else where
        return type(self)(self.problem, hint=self.hint, where=joined)


class InputError(KvtallyError):
    """The question or the input is wrong: exit code 2."""


class UnreadableError(KvtallyError):
    """A file or an id that cannot be read: exit code 3."""

    exit_code = 3


class MissingExtraError(KvtallyError):
    """An optional dependency that is not installed: exit code 3."""

    exit_code = 3


def require_int(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """`value` itself where it is an integer from `least` to `most`; otherwise an InputError.

    >>> require_int("new", 3, least=1)
    3
    """
    bounds = f"an integer of at least {least:,}" + ("" if most is None else f" and at most {most:,}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"`{name}` is {value!r}, expected {bounds}")
    if value < least or (most is not None and value > most):
        raise InputError(f"`{name}` is {value:,}, expected {bounds}")
    return value


def require_number(
    name: str, value: object, *, least: float | None = None, above: float | None = None, below: float | None = None
) -> float:
    """`value` itself where it is a finite number within the bounds; otherwise an InputError.

    >>> require_number("tolerance", 1e-3, above=0, below=1)
    0.001
    """
    known = ((least, "of at least"), (above, "above"), (below, "below"))
    said = " and ".join(f"{word} {bound:g}" for bound, word in known if bound is not None)
    bounds = f"a number {said}".rstrip()
    if isinstance(value, int) and abs(value) > float_info.max:
        raise InputError(f"`{name}` is an integer of {value.bit_length():,} bits, expected {bounds} that a float holds")
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError(f"`{name}` is {value!r}, expected {bounds}")
    low = (least is not None and value < least) or (above is not None and value <= above)
    if low or (below is not None and value >= below):
        raise InputError(f"`{name}` is {value:g}, expected {bounds}")
    return value


def require_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Nothing where `value` is one of `known`; otherwise an InputError that lists them."""
    names = sorted(known)
    if value not in names:
        raise InputError(f"`{name}` is {value!r}; known: " + ", ".join(f"`{n}`" for n in names))
