"""The subprocess that runs the learner's file: started, asked, listened to, ended."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from kvtally.core.errors import InputError, UnreadableError
from kvtally.frontends.lab.provenance import ERRORS, Ledger

HERE = Path(__file__).parent
#: Bare packages instead of the real ones: the child needs three files of this folder and nothing else of kvtally.
BOOT = """
import sys, types
for name in ("kvtally", "kvtally.frontends", "kvtally.frontends.lab"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1]]
from kvtally.frontends.lab import child
child.main(*map(int, sys.argv[2:]))
"""
#: What kv.py may import: loaded before the subprocess gives up the file system.
MODULES = frozenset(
    """__future__ abc array bisect cmath collections collections.abc contextlib copy dataclasses decimal enum
    fractions functools heapq itertools json math numbers operator random re statistics string struct sys
    textwrap time types typing""".split()  # noqa: SIM905
)
SECONDS, CPU, MEMORY = 5.0, 8, 384 << 20
PRINTED, REPLY = 1 << 20, 8 << 20  # bytes


class StoppedError(Exception):
    """The subprocess ended, or was ended, before it answered; the text says why, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one call gave: its result or error, the learner's counter, what was seen, what was printed."""

    result: Any
    error: Mapping[str, Any] | None
    counter: int | None
    report: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """A running subprocess with the learner's `text` loaded; use it in a `with` block.

    `reached` names what keeps it apart; `isolation.gaps` what it could still do. With a
    `ledger` every number stays in this process: the subprocess asks for each operation.
    """

    text: str
    file: str = "kv.py"
    ledger: Ledger | None = None
    seconds: float = SECONDS
    python: str = sys.executable
    without: Sequence[str] = ()
    reached: list[str] = field(default_factory=list)
    printed: bytearray = field(default_factory=bytearray)
    failure: Mapping[str, Any] | None = None
    _nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    _calls: int = 0
    _rest: bytearray = field(default_factory=bytearray)
    _process: subprocess.Popen[bytes] | None = None
    _requests: int = -1
    _replies: int = -1
    _select: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __enter__(self) -> Sandbox:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        if os.name != "posix":
            raise InputError("kvtally lab runs a file in a process of its own, which takes Linux or macOS")
        theirs_in, self._requests = os.pipe()
        self._replies, theirs_out = os.pipe()
        command = [self.python, "-I", "-S", "-B", "-c", BOOT, str(HERE), str(theirs_in), str(theirs_out)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=(theirs_in, theirs_out), start_new_session=True, cwd="/", env={"PYTHONIOENCODING": "utf-8"},
            )  # fmt: skip
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        assert self._process.stdout is not None
        for descriptor in (self._replies, self._process.stdout.fileno()):
            os.set_blocking(descriptor, False)
            self._select.register(descriptor, selectors.EVENT_READ)
        self._send({"nonce": self._nonce, "text": self.text, "file": self.file, "modules": sorted(self._imports()),
                    "without": list(self.without), "strict": self.ledger is not None,
                    "cpu": CPU, "memory": MEMORY})  # fmt: skip
        until = time.monotonic() + self.seconds + 5  # a busy machine may be slow to start Python
        try:
            self.reached = list(self._receive(until, {"reached": list})["reached"])
        except StoppedError as error:
            said = self.printed.decode(errors="replace").strip().splitlines()
            problem = f"{self.python} does not run the file: {said[-1] if said else error}"
            raise UnreadableError(problem, hint="a Python of 3.9 or newer is needed; --python takes one") from None
        until = time.monotonic() + self.seconds
        self.failure = self._receive(until, {"id": int, "error": (dict, type(None))})["error"]

    def _imports(self) -> set[str]:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return {name for name, *_ in imports(self.text)} & MODULES
        return set()

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Reply:
        """What the learner's function `name` gives for encoded arguments; StoppedError where nothing came back."""
        self._calls += 1
        self._send({"id": self._calls, "call": name, "args": args, "kwargs": kwargs})
        until = time.monotonic() + self.seconds
        while True:
            reply = self._receive(until, {})
            if "op" not in reply:
                return self._checked(reply)
            if self.ledger is None:
                raise StoppedError(_FORGED)
            self._send(_operated(self.ledger, reply["op"]))

    def _checked(self, reply: dict[str, Any]) -> Reply:
        shape = {"id": int, "error": (dict, type(None)), "counter": (int, type(None)), "report": (dict, type(None))}
        _require(reply, shape)
        if reply["id"] != self._calls:
            raise StoppedError(_FORGED)
        report = reply["report"] if self.ledger is None else self.ledger.report()
        _check_report(report)
        if reply["error"] is not None:
            _require(reply["error"], {"type": str, "message": str, "line": (int, type(None))})
        try:
            result = _values(reply.get("result"), self.ledger)
        except (TypeError, IndexError, KeyError) as error:
            raise StoppedError(_FORGED) from error
        return Reply(result=result, error=reply["error"], counter=reply["counter"], report=report)

    def _send(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # the end is noticed, and explained, when its answer is read
            while data:
                data = data[os.write(self._requests, data) :]

    def _receive(self, until: float, shape: Mapping[str, Any]) -> dict[str, Any]:
        while b"\n" not in self._rest:
            self._listen(until)
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoppedError(_FORGED) from error
        if not isinstance(reply, dict) or reply.get("nonce") != self._nonce:
            raise StoppedError(_FORGED)
        _require(reply, shape)
        return reply

    def _listen(self, until: float) -> None:
        """Take in what the subprocess writes until its next reply is whole; StoppedError when it never will be."""
        left = until - time.monotonic()
        events = self._select.select(max(left, 0))
        if left <= 0 and not events:
            raise StoppedError(f"it did not answer within {self.seconds:g} s: an endless loop, or a wait")
        ended = False
        for key, _ in events:
            data = os.read(key.fd, 1 << 16)
            if key.fd == self._replies:
                self._rest += data
                ended = not data
            elif data:
                self.printed += data
            else:
                self._select.unregister(key.fd)
        if len(self.printed) > PRINTED:
            raise StoppedError(f"it printed more than {PRINTED >> 20} MB")
        if len(self._rest) > REPLY:
            raise StoppedError(f"its answer is longer than {REPLY >> 20} MB")
        if ended:
            raise StoppedError(_ending(self.close()))

    def close(self) -> int:
        """End the subprocess and all it started; its exit status."""
        process, self._process = self._process, None
        for descriptor in (self._requests, self._replies):
            if descriptor >= 0:
                os.close(descriptor)
        self._requests = self._replies = -1
        self._select.close()
        if process is None:
            return 0
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()  # the lifeline
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        return process.wait()


_FORGED = "an answer came that is not the grader's own: something in kv.py writes to its pipe"


def imports(text: str) -> list[tuple[str, int, str]]:
    """(module, line, function it stands in or "") of every import in the text.

    >>> imports("import math")
    [('math', 1, '')]
    """
    return _imports(ast.parse(text), "")


def _imports(node: ast.AST, function: str) -> list[tuple[str, int, str]]:
    found = []
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Import):
            found += [(alias.name, inner.lineno, function) for alias in inner.names]
        elif isinstance(inner, ast.ImportFrom):
            found.append((inner.module or ".", inner.lineno, function))
        else:
            named = isinstance(inner, ast.FunctionDef) and not function
            found += _imports(inner, inner.name if named else function)  # type: ignore[attr-defined]
    return found


def _operated(ledger: Ledger, op: Any) -> dict[str, Any]:
    """The answer to one operation that the subprocess asks for."""
    try:
        name, *operands = op
        if name not in ("value", "reveal", "unary", "binary"):
            raise StoppedError(_FORGED)
        return {"result": getattr(ledger, name)(*operands)}
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        kind = next(name for name, known in ERRORS.items() if isinstance(error, known))
        return {"raise": kind, "message": str(error)}
    except (TypeError, IndexError, KeyError) as error:
        raise StoppedError(_FORGED) from error


def _values(result: Any, ledger: Ledger | None, depth: int = 0) -> Any:
    """The plain values of an encoded result; what is no part of an answer stays a dict that names its type."""
    if depth > 8:
        return {"other": "a list in a list, nine deep"}
    if isinstance(result, list):
        return [_values(item, ledger, depth + 1) for item in result]
    if isinstance(result, dict) and "number" in result and ledger is not None:
        return ledger.values[result["number"]]
    if isinstance(result, dict) and "value" in result and ledger is None:
        return float(result["value"])
    return result


def _check_report(report: Any) -> None:
    """StoppedError where what was seen has another form than a ledger's report."""
    if not isinstance(report, dict):
        raise StoppedError(_FORGED)
    _require(report, {"terms": dict, "served": list, "revealed": int})
    terms = all(isinstance(n, int) and n >= 0 for n in report["terms"].values())
    served = all(isinstance(row, list) and [type(x) for x in row] == [int, int, str, int] for row in report["served"])
    if not (terms and served):
        raise StoppedError(_FORGED)


def _require(reply: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
    for name, kind in shape.items():
        if not isinstance(reply.get(name), kind):
            raise StoppedError(_FORGED)


def _ending(status: int) -> str:
    """Why the subprocess ended, in words."""
    number = status - 128 if status > 128 else -status
    if number == signal.SIGKILL:
        return f"it was ended: more than {CPU} s of CPU, or killed"
    if status > 128 or status < 0:
        names = {s.value: s.name for s in signal.Signals}
        return f"it crashed Python ({names.get(number, number)}): was there too deep a recursion?"
    return f"it ended the program (exit code {status}) instead of returning"
