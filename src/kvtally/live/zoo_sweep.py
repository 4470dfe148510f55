"""Visit every architecture of the zoo, each in a process of its own, with limits of time and memory."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kvtally.live.zoo import visit
from kvtally.live.zoo_row import Outcome, Row, bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one architecture may take, in seconds and in bytes, and what is done with it there.

    `work` answers with a `row`: a record with `name` and `built`, `to_dict` and `from_dict`.
    """

    seconds: float = 120
    memory: int = 6 << 30
    work: Callable[[str], Any] = visit
    row: Any = Row


@dataclass(slots=True, eq=False)
class _Visit:
    """A child at work: its process, the pipe it answers through, and when its time is over."""

    name: str
    pid: int
    pipe: int
    limits: Limits
    until: float
    said: bytes = b""


def sweep(wanted: Sequence[str], *, jobs: int = 1, limits: Limits | None = None) -> Iterator[Any]:
    """The row of each architecture as it is done, each made in a process of its own, `jobs` at a time.

    torch and transformers are imported here, once, and every child is forked from this process,
    which itself runs no model. A child that goes beyond its limits is ended, with everything it
    started; so are all of them where the caller stops asking.
    """
    limits = limits or Limits()
    _import_once()
    waiting, running = list(reversed(wanted)), dict[int, _Visit]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                child = _start(waiting.pop(), limits)
                running[child.pipe] = child
            soonest = min(child.until for child in running.values())
            ready, _, _ = select.select(list(running), [], [], max(0.0, soonest - time.monotonic()))
            for child in [c for c in running.values() if c.pipe in ready or time.monotonic() > c.until]:
                more = os.read(child.pipe, 1 << 16) if child.pipe in ready else b""
                child.said += more
                if not more:
                    del running[child.pipe]
                    yield _end(child)
    finally:
        for child in running.values():
            _end(child)


def _import_once() -> None:
    """Everything that children share, imported before the first fork; one thread, so that forking is safe."""
    import transformers
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq
    from transformers.models.llama import modeling_llama

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    del AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, modeling_llama


def _start(name: str, limits: Limits) -> _Visit:
    here, there = os.pipe()
    pid = _forked()
    if pid == 0:
        os.close(here)
        _child(name, there, limits)
    os.close(there)
    return _Visit(name, pid, here, limits, time.monotonic() + limits.seconds)


def _forked() -> int:
    """What `os.fork` gives. An interrupt waits: what Python runs around a fork would swallow it."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _child(name: str, pipe: int, limits: Limits) -> None:
    """Never returns: limits itself, answers with one line of JSON, and exits without touching what is its parent's."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))
        try:
            row = limits.work(name)
        except BaseException as error:
            row = limits.row(name=name, built=bad(error))
        with os.fdopen(pipe, "w") as answer:
            answer.write(json.dumps(row.to_dict()))
    finally:
        os._exit(0)


def _end(child: _Visit) -> Any:
    """The row that a child sent; where it sent none, one that says how it ended. Nothing of it stays behind."""
    late = time.monotonic() > child.until
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        os.kill(child.pid, signal.SIGKILL)
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    try:
        return child.limits.row.from_dict(json.loads(child.said))
    except ValueError:
        late_by = f"took longer than {child.limits.seconds:g} seconds"
        how = late_by if late else f"ended by status {status} without an answer"
        return child.limits.row(name=child.name, built=Outcome(ok=False, note=how))
