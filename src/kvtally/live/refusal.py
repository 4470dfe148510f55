"""What another library raised, in a sentence of ours."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvtally.core.errors import InputError, KvtallyError

LONGEST = 240  # characters of a message


@contextmanager
def refused(problem: str, *, where: str = "", hint: str = "") -> Iterator[None]:
    """Whatever is raised inside as an error of the input: `problem`, and the words of what was raised; at `where`."""
    try:
        yield
    except KvtallyError as error:
        raise (error.at(where) if where else error) from error.__cause__
    except Exception as error:
        raise InputError(f"{problem}: {refusal_of(error)}", where=where, hint=hint) from error


def refusal_of(error: BaseException) -> str:
    """An error's own message, with the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {brief(error)}{place}"


def brief(error: BaseException) -> str:
    """What an error says, on one line, its middle left out where it is long."""
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
