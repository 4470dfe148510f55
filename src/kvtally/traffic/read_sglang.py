"""SGLang's log of finished requests: the token ids (or the text) of each prompt, as lines of text or of JSON."""

from __future__ import annotations

import re
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kvtally.core.errors import InputError

Record = dict[str, Any]
LINE = "line"  # the field of a record that is a line of text
FINISHED = "request.finished"
IDS = re.compile(r"\binput_ids=\[([^\]]*)\](?! \.\.\.)")  # what follows marks a list that the log cut
TEXT = re.compile(r"[(\s]text=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
RECEIVED = re.compile(r"'request_received_ts': ([0-9.]+)")
MADE = re.compile(r"'completion_tokens': (\d+)")
CUT = " ... "  # what the log puts in place of the middle of long values
WHOLE = "start the server with --log-requests --log-requests-level 3"
LEFT = "lines of a log that finish no request"


def calls(record: Record, left_out: Counter[str]) -> Iterator[Record]:
    """A chat or token ids for a `Finish:` line; every other line is none of a request."""
    line = record.get(LINE)
    if not isinstance(line, str):
        yield from _of_json(record)
    elif "Finish:" in line:
        asked, _, answered = line.partition(", out={")
        times = RECEIVED.search(answered) or STAMP.search(line)
        made = MADE.search(answered)
        yield {
            **_prompt(asked),
            "timestamp": times[1] if times else None,
            "output_length": made[1] if made else 0,
        }
    else:
        left_out[LEFT] += 1


def _prompt(asked: str) -> Record:
    found, said = IDS.search(asked), TEXT.search(asked)
    if found:
        try:
            return {"token_ids": [int(one) for one in found[1].split(",") if one.strip()]}
        except ValueError:
            raise InputError(f"`input_ids` is [{found[1]:.60}, expected integers") from None
    if said and CUT not in said[1]:
        try:
            return {"prompt": literal_eval(said[1])}
        except (SyntaxError, ValueError):
            raise InputError(f"`text` is {said[1]:.60}, expected text as Python writes it") from None
    raise InputError("a finished request without its whole prompt, expected input_ids=[…]", hint=WHOLE)


def _of_json(record: Record) -> Iterator[Record]:
    if record.get("event") != FINISHED:
        return
    asked, out = record.get("obj"), record.get("out")
    asked = asked if isinstance(asked, dict) else {}
    answered = out.get("meta_info") if isinstance(out, dict) else {}
    answered = answered if isinstance(answered, dict) else {}
    rest = {
        "timestamp": answered.get("request_received_ts", record.get("timestamp")),
        "output_length": answered.get("completion_tokens", 0),
    }
    if isinstance(asked.get("input_ids"), list):
        yield {"token_ids": asked["input_ids"], **rest}
    elif isinstance(asked.get("text"), str) and CUT not in asked["text"]:
        yield {"prompt": asked["text"], **rest}
    else:
        raise InputError("a finished request without its whole prompt, expected `input_ids`", hint=WHOLE)
