"""What runs in the subprocess: it loads the learner's file and answers calls, one JSON line each."""

# Runs beside the learner's code: standard library of Python 3.9, no import from the rest of kvtally.
from __future__ import annotations

import importlib
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from kvtally.frontends.lab import isolation, provenance
from kvtally.frontends.lab.provenance import Ledger, Number

MOST_ITEMS = 50_000


class Channel:
    """Lines of JSON to and from the grader; each line out carries the nonce."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests, self._replies = requests, replies
        self.nonce = ""
        self._rest = b""

    def receive(self) -> Any:
        while b"\n" not in self._rest:
            data = os.read(self._requests, 65536)
            if not data:
                os._exit(0)
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def send(self, reply: dict[str, Any]) -> None:
        data = json.dumps({"nonce": self.nonce, **reply}).encode() + b"\n"
        while data:
            data = data[os.write(self._replies, data) :]


class RemoteLedger:
    """The grader's ledger, asked through the channel: no number is kept on this side."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def begin(self) -> None:
        """Nothing: the grader begins each call itself."""

    def report(self) -> None:
        """Nothing: the grader has seen everything itself."""

    def _ask(self, *op: Any) -> Any:
        self._channel.send({"op": list(op)})
        answer = self._channel.receive()
        if "raise" in answer:
            raise provenance.ERRORS[answer["raise"]](answer["message"])
        return answer["result"]

    def value(self, index: int) -> float:
        return float(self._ask("value", index))

    def reveal(self, index: int) -> float:
        return float(self._ask("reveal", index))

    def unary(self, name: str, index: int) -> int:
        return int(self._ask("unary", name, index))

    def binary(self, name: str, left: Any, right: Any) -> int:
        plain = [side if isinstance(side, list) else float(side) for side in (left, right)]
        return int(self._ask("binary", name, *plain))


def decoded(data: Any, ledger: Any, own: dict[str, Any]) -> Any:
    """The argument that `data` stands for: plain values, numbers of the ledger, the learner's functions."""
    if isinstance(data, list):
        return [decoded(item, ledger, own) for item in data]
    if not isinstance(data, dict):
        return data
    if "tuple" in data:
        return tuple(decoded(item, ledger, own) for item in data["tuple"])
    if "own" in data:
        return own[data["own"]]
    index = data["number"] if "number" in data else ledger.add(data["value"], data["kind"], data["token"])
    return Number(ledger, index)


def encoded(result: Any, ledger: Any, room: list[int]) -> Any:
    """`result` as JSON takes it; a number of the ledger by index, anything foreign by its type's name."""
    room[0] -= 1
    if room[0] < 0:
        raise ValueError(f"the answer has more than {MOST_ITEMS:,} items")
    if type(result) is Number:
        index = result._index
        return {"number": index} if isinstance(ledger, RemoteLedger) else {"value": ledger.values[index]}
    if type(result) is int and abs(result) >= 10**30:
        return {"other": "a whole number of more than 30 digits"}
    if result is None or type(result) in (bool, int, float, str):
        return result
    if type(result) in (list, tuple) or hasattr(type(result), "__next__"):
        return [encoded(item, ledger, room) for item in result]
    return {"other": type(result).__name__}


def failure(error: BaseException, file: str) -> dict[str, Any]:
    """What was raised, and the line of the learner's file it came from."""
    line: int | None = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        message = str(error)[:300]
    except Exception:  # the learner's own exception may fail to print
        message = ""
    return {"type": type(error).__name__, "message": message, "line": line}


def loaded(text: str, file: str) -> dict[str, Any]:
    """The names that the learner's file defines."""
    module = types.ModuleType("kv")
    sys.modules["kv"] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return module.__dict__


def answer(request: dict[str, Any], own: dict[str, Any], ledger: Any, file: str) -> dict[str, Any]:
    """The reply to one call: its result or what it raised, the learner's counter, what was seen."""
    ledger.begin()
    own["multiplications"] = 0
    reply: dict[str, Any] = {"id": request["id"], "result": None, "error": None, "report": None}
    try:
        function: Callable[..., Any] = own[request["call"]]
        args = [decoded(a, ledger, own) for a in request["args"]]
        kwargs = {name: decoded(a, ledger, own) for name, a in request["kwargs"].items()}
        reply["result"] = encoded(function(*args, **kwargs), ledger, [MOST_ITEMS])
    except BaseException as error:  # whatever it raises is an answer, SystemExit included
        reply["error"] = failure(error, file)
    counter = own.get("multiplications")
    reply["counter"] = counter if type(counter) is int and abs(counter) < 10**12 else None
    reply["report"] = ledger.report()
    sys.stdout.flush()
    return reply


def main(requests: int, replies: int) -> None:
    """Read the first line, give up every privilege, load the file, answer until the grader hangs up."""
    channel = Channel(requests, replies)
    first = channel.receive()
    channel.nonce = first["nonce"]
    for name in first["modules"]:
        importlib.import_module(name)
    provenance.teach_math()
    for name in [n for n in sys.modules if n.split(".")[0] == "kvtally"]:
        del sys.modules[name]
    reached = isolation.apart(first["without"])
    reached = isolation.isolate(reached, first["without"], first["cpu"], first["memory"])
    channel.send({"reached": reached})
    try:
        own = loaded(first["text"], first["file"])
    except BaseException as error:  # whatever loading raises is an answer, SystemExit included
        channel.send({"id": 0, "error": failure(error, first["file"])})
        return
    channel.send({"id": 0, "error": None})
    ledger: Any = RemoteLedger(channel) if first["strict"] else Ledger()
    while True:
        channel.send(answer(channel.receive(), own, ledger, first["file"]))
