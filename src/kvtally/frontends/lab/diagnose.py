"""What went wrong, in one sentence: mistakes recognised by the numbers they give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvtally.frontends.lab import expected
from kvtally.frontends.lab.mistakes import mistakes
from kvtally.frontends.lab.steps import Case, plain


def alike(a: Any, b: Any) -> bool:
    """Whether answer `a` is `b`: the same shape, integers equal, floats within 1e-9 (relative above 1)."""
    if isinstance(b, list | tuple):
        return isinstance(a, list | tuple) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(b, bool) or isinstance(a, bool):
        return a is b
    if isinstance(b, int):
        return isinstance(a, int) and a == b
    # Sums of at most a few dozen terms below 10: reordering them moves the 15th digit at most.
    return isinstance(a, int | float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def right_answer(case: Case) -> Any:
    """The right answer to a call, from plain numbers."""
    own = {name: expected.right(function) for name, function in case.own.items()}
    return expected.right(case.call)(*map(plain, case.args), **own)


def wrong_value(case: Case, got: Any, others: Sequence[tuple[Case, Any]]) -> str:
    """One sentence on an answer that is not the right one; `others` are the step's other calls and answers."""
    right = right_answer(case)
    if case.call == "same":
        return f"`same` says {got} for two lists of vectors with {case.sizes}, tol = {case.args[2]:g}"
    if got is None:
        return "nothing is returned: is the `return` missing?"
    if case.again and any(c.args is case.args and alike(a, right) for c, a in others):
        return "the same call again gives another answer: the cache is shared across runs, make it inside the function"
    if any(c.args is not case.args and alike(a, got) and not alike(right_answer(c), right) for c, a in others):
        return "the answer does not depend on the input: it is hard-coded"
    store = expected.right(case.own["store"]) if "store" in case.own else None
    for sentence, value in mistakes(case.call, tuple(map(plain, case.args)), store):
        if _gives(value, got, right):
            return sentence
    return _shape(right, got) or _where(right, got)


def _gives(value: Callable[[], Any], got: Any, right: Any) -> bool:
    """Whether a mistake explains the answer: it gives `got`, and is not right by chance on this input."""
    try:
        wrong = value()
    except (ArithmeticError, ValueError, IndexError, KeyError):  # this mistake gives no answer to this input
        return False
    if alike(wrong, right):
        return False
    return alike(got, wrong) or _but_for_the_first(got, wrong, right)


def _but_for_the_first(got: Any, wrong: Any, right: Any) -> bool:
    """Whether every output after the first is the mistake's: a first token can be treated apart."""
    if not (isinstance(got, list) and isinstance(wrong, list) and len(got) == len(wrong) == len(right) > 2):
        return False
    return isinstance(wrong[0], list) and alike(got[1:], wrong[1:]) and not alike(wrong[1:], right[1:])


def _shape(right: Any, got: Any) -> str:
    """A sentence where the answer has another form than expected."""
    asked, given = form(right), form(got)
    return "" if asked == given else f"the answer is {given}, expected {asked}"


def form(value: Any) -> str:
    """What an answer is made of, in words.

    >>> form([[1.0, 2.0], [3.0, 4.0]])
    'a list of 2 lists of 2 numbers'
    """
    if isinstance(value, dict):
        return f"of type {value.get('other', '?')}"
    if not isinstance(value, list | tuple):
        return "a number" if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)[:40]
    if not value:
        return "an empty list"
    inner = {form(item) for item in value}
    if inner == {"a number"}:
        return f"a list of {len(value)} numbers"
    same = inner.pop() if len(inner) == 1 else "things of several kinds"
    return f"a list of {len(value)} {same.replace('a list', 'lists', 1)}"


def _where(right: Any, got: Any, at: str = "") -> str:
    """A sentence that shows the first number that differs."""
    if isinstance(right, list | tuple):
        pairs = zip(right, got, strict=True)
        return next((_where(r, g, f"{at}[{i}]") for i, (r, g) in enumerate(pairs) if not alike(g, r)), "")
    place = f"answer{at}" if at else "the answer"
    if isinstance(right, int) and isinstance(got, float) and got == right:
        return f"{place} is {got}, a float, expected the whole number {right:,}: divide with // and not /"
    return f"{place} is {_short(got)}, expected {_short(right)}"


def _short(number: Any) -> str:
    return (
        f"{number:.10g}"
        if isinstance(number, float)
        else f"{number:,}"
        if isinstance(number, int)
        else repr(number)[:60]
    )


def raised(call: str, error: Mapping[str, Any], text: str) -> str:
    """One sentence on what the learner's function raised, with the line it came from."""
    kind, message, line = (error.get(name) for name in ("type", "message", "line"))
    message = re.sub(r"\[Errno \d+\] Too many open files.*", "no file can be opened here", str(message))
    lines = text.splitlines()
    place = f" (line {line}: `{lines[line - 1].strip()}`)" if isinstance(line, int) and 0 < line <= len(lines) else ""
    return f"{kind}: {message}{place}" + _advice(call, str(kind), message)


def _advice(call: str, kind: str, message: str) -> str:
    """What to do about it, where that is known."""
    loop = call.startswith(("run_", "step_"))
    no_keys = kind == "ZeroDivisionError" or (kind == "ValueError" and "empty" in message)
    known = (
        (message == "name 'math' is not defined", "write `import math` at the top of the file"),
        (message == "name 'struct' is not defined", "write `import struct` at the top of the file"),
        (kind == "UnboundLocalError" and "multiplications" in message,
         "write `global multiplications` as the function's first line"),
        (loop and no_keys, "a query met no keys: keep the token's own k and v before you attend"),
        (kind in ("ModuleNotFoundError", "ImportError") or "no file can be opened" in message,
         "the lesson needs no files, and no module but math and struct"),
        (kind == "MemoryError", "the lesson's numbers need a few MB"),
        (kind == "RecursionError", "a function calls itself without an end"),
    )  # fmt: skip
    return next((f"; {what}" for holds, what in known if holds), "")
