"""The grader: pokes each step of the learner's file, and stops at the first that is not finished."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvtally.frontends.lab import counts, diagnose, isolation
from kvtally.frontends.lab.provenance import Ledger
from kvtally.frontends.lab.remarks import remark
from kvtally.frontends.lab.sandbox import Reply, Sandbox, StoppedError, imports
from kvtally.frontends.lab.steps import STEPS, Case, Step, Traced, plain

PASSED, FAILED, UNWRITTEN, WAITING = "passed", "failed", "not written", "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one step went: three figures of its last or first failing call, a sentence, what was asked."""

    number: int
    name: str
    bonus: bool
    state: str
    sizes: str = ""
    counter: int | None = None
    seen: int | None = None
    formula: int | None = None
    message: str = ""
    remark: str = ""
    call: str = ""
    triangle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A check of a file: seed, isolation reached, one Outcome a step, and the learner's own table and memory."""

    file: str
    seed: int
    strict: bool
    isolation: str
    outcomes: tuple[Outcome, ...]
    printed: str = ""
    table: tuple[tuple[int, ...], ...] = ()
    memory: tuple[int, ...] = ()

    @property
    def passed(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.state == PASSED]

    @property
    def stopped(self) -> Outcome | None:
        """The first step of the lesson proper that is not finished, or a bonus step that was tried and failed."""
        unfinished = [o for o in self.outcomes if o.state == FAILED or (o.state == UNWRITTEN and not o.bonus)]
        return unfinished[0] if unfinished else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(
    text: str, *, seed: int, file: str = "kv.py", steps: Sequence[Step] = STEPS, strict: bool = False,
    seconds: float = 5.0, without: Sequence[str] = (), python: str = sys.executable,
) -> Report:  # fmt: skip
    """The report on a learner's file.

    Steps of the lesson are taken in order up to the first that is not finished; bonus steps stand for
    themselves. Nothing is counted by trust: values and multiplications are worked out here.
    """
    ledger = Ledger() if strict else None
    sandbox = Sandbox(text=text, file=file, ledger=ledger, seconds=seconds, without=without, python=python)
    outcomes: list[Outcome] = []
    numbers: tuple[Any, Any] = ((), ())
    try:
        with sandbox:
            _run(sandbox, steps, seed, outcomes)
            numbers = _numbers(sandbox, outcomes)
    except StoppedError as stopped:
        outcomes.append(_outcome(steps[len(outcomes)], FAILED, message=str(stopped)))
    outcomes += [_outcome(step, WAITING) for step in steps[len(outcomes) :]]
    return Report(
        file=file, seed=seed, strict=strict, isolation=isolated(sandbox.reached), outcomes=tuple(outcomes),
        printed=_readable(bytes(sandbox.printed)), table=numbers[0], memory=numbers[1],
    )  # fmt: skip


def isolated(reached: list[str]) -> str:
    """One line on how far the learner's code was kept apart."""
    found = isolation.gaps(reached)
    names = ", ".join(reached) or "nothing"
    if not found:
        return f"sandbox: {names}"
    return f"not a sandbox ({names}): the file could {', '.join(found)}; check only files you trust"


def _outcome(step: Step, state: str, *, message: str = "", **more: Any) -> Outcome:
    message = "".join(c if c.isprintable() else "?" for c in message)  # parts of it are the learner's own words
    return Outcome(number=step.number, name=step.name, bonus=step.bonus, state=state, message=message, **more)


def _run(sandbox: Sandbox, steps: Sequence[Step], seed: int, outcomes: list[Outcome]) -> None:
    """Append an outcome a step, until a step of the lesson is not finished."""
    for step in steps:
        outcome = _foreign(sandbox.text, step, steps[0]) or _unloaded(sandbox, step) or _step(sandbox, step, seed)
        outcomes.append(outcome)
        if outcome.state != PASSED and not step.bonus:
            return


def _foreign(text: str, step: Step, first: Step) -> Outcome | None:
    """A failure where the step's function, or for the first step the file itself, imports what it should not."""
    try:
        found = imports(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # said better when the file is loaded
        return None
    for name, line, function in found:
        here = function == step.name or (step is first and not function)
        if here and name.split(".")[0] not in sys.stdlib_module_names:
            return _outcome(step, FAILED, message=f"line {line} imports {name}: the lesson is plain Python, with "
                            "lists of numbers, so that every multiplication is yours to count")  # fmt: skip
    return None


def _unloaded(sandbox: Sandbox, step: Step) -> Outcome | None:
    if sandbox.failure is None:
        return None
    message = diagnose.raised("", sandbox.failure, sandbox.text)
    return _outcome(step, FAILED, message=f"{sandbox.file} cannot be loaded: {message}")


def _step(sandbox: Sandbox, step: Step, seed: int) -> Outcome:
    """The outcome of one step: all its calls are made, the first that is wrong is told."""
    answers: list[tuple[Case, Reply]] = []
    raised: list[Outcome] = []
    for case in step.cases(seed):
        reply = _asked(sandbox, case)
        if reply.error is not None:
            raised.append(_raised(sandbox, step, case, reply.error))
            break
        answers.append((case, reply))
    told = [*(_judged(step, case, reply, answers) for case, reply in answers), *raised]
    return next((o for o in told if o.state != PASSED), next((o for o in told if o.remark), told[-1]))


def _asked(sandbox: Sandbox, case: Case) -> Reply:
    if sandbox.ledger is not None:
        sandbox.ledger.begin()
    args = [_encoded(arg, sandbox.ledger) for arg in case.args]
    return sandbox.call(case.call, args, {name: {"own": f} for name, f in case.own.items()})


def _encoded(arg: Any, ledger: Ledger | None) -> Any:
    """An argument as the subprocess takes it; in strict mode its numbers stay here and go by index."""
    if isinstance(arg, tuple):
        return {"tuple": [_encoded(item, ledger) for item in arg]}
    if isinstance(arg, list):
        return [_encoded(item, ledger) for item in arg]
    if not isinstance(arg, Traced):
        return arg
    if ledger is None:
        return {"value": arg.value, "kind": arg.kind, "token": arg.token}
    return {"number": ledger.add(arg.value, arg.kind, arg.token)}


def _raised(sandbox: Sandbox, step: Step, case: Case, error: Mapping[str, Any]) -> Outcome:
    call = _shown(case)
    if error.get("type") == "NotImplementedError":
        return _outcome(step, UNWRITTEN, sizes=case.sizes, message="still to be written")
    missing = error.get("type") == "KeyError" and error.get("message") == repr(case.call)
    message = (
        f"{sandbox.file} has no function {case.call}" if missing else diagnose.raised(case.call, error, sandbox.text)
    )
    return _outcome(step, FAILED, sizes=case.sizes, message=message, call=call)


def _judged(step: Step, case: Case, reply: Reply, answers: Sequence[tuple[Case, Reply]]) -> Outcome:
    right = diagnose.right_answer(case)
    value_right = diagnose.alike(reply.result, right)
    others = [(c, r.result) for c, r in answers if c is not case]
    sentences = [] if value_right else [diagnose.wrong_value(case, reply.result, others)]
    figures: dict[str, Any] = {}
    if case.terms is not None:
        verdict = counts.judged(case, reply, value_right)
        sentences += [verdict.mistake] if verdict.mistake else []
        figures = {"counter": verdict.counter, "seen": verdict.seen, "formula": verdict.formula}
        figures["remark"] = verdict.remark if value_right else ""
    if not sentences and not figures.get("remark"):
        figures["remark"] = remark(case, reply)
    if case.call.startswith("run_w") and not case.own:
        figures["triangle"] = tuple(counts.triangle(reply, len(case.args[0])))
    if not sentences:
        return _outcome(step, PASSED, sizes=case.sizes, **figures)
    kind = "" if case.terms is None else "value: " if not value_right else "count: "
    kind = "value and count: " if len(sentences) > 1 else kind
    return _outcome(
        step, FAILED, sizes=case.sizes, message=kind + "; and ".join(sentences), call=_shown(case), **figures
    )


def _shown(case: Case) -> str:
    """The call with its arguments, as it can be typed in."""
    named = [f"{name} = {plain(arg)!r}" for name, arg in zip(case.names, case.args, strict=True)]
    names = [*case.names, *(f"{name}={function}" for name, function in case.own.items())]
    return "\n".join([*named, f"{case.call}({', '.join(names)})"])


def _numbers(sandbox: Sandbox, outcomes: Sequence[Outcome]) -> tuple[Any, Any]:
    """The learner's own table by length and memory figures, where those steps have passed."""
    passed = {o.name for o in outcomes if o.state == PASSED}
    found: list[Any] = []
    for name, args in (("table", ([10, 100, 1000], 64)), ("memory", (100, 1, 1, 64, 2))):
        reply = sandbox.call(name, args, {}) if name in passed else None
        found.append(reply.result if reply and reply.error is None else ())
    table, memory = found
    with contextlib.suppress(TypeError):  # a table that is right for the grader's lengths and odd for these
        return tuple(tuple(row) for row in table), tuple(memory)
    return (), ()


def _readable(data: bytes) -> str:
    """What was printed, without control characters, its first 20 lines."""
    lines = data[:8000].decode(errors="replace").splitlines()
    return "\n".join("".join(c if c.isprintable() else "?" for c in line)[:200] for line in lines[:20])
