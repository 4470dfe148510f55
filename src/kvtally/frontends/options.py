"""Options as they were typed: what any verb asks of its own, and those of `count` as records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kvtally.core.decoder import Decoder, lesson
from kvtally.core.errors import InputError, KvtallyError, require_int, require_number, require_one_of
from kvtally.core.passes import LONGEST, LOOPS
from kvtally.core.span import KERNELS
from kvtally.frontends.evidence import Evidence, executed, executed_small, traced
from kvtally.frontends.question import Question
from kvtally.frontends.sizes import Sizes

CHOICES = {
    "kernel": KERNELS,
    "uncached": LOOPS,
    "against": ("executed", "traced"),
    "by": ("layer", "phase", "term"),
    "form": ("table", "json", "csv", "md"),
}
SPECIAL = ("lengths", "edit_at", "turns", "chunk")  # at most one of them
SIZES = {"layers": 1, "hidden": 1, "heads": 1, "kv_heads": 1, "head_dim": 1, "mlp": 0, "vocab": 0, "window": 0}  # least
LESSON, REAL, RUN = (1, 100), (512, 128), (16, 8)  # prompt and new where they are not given
FLAGS = {"form": "--format", "jobs": "-n"}  # of options that click names otherwise

Given = Mapping[str, Any]  # option, as click names it, and what was typed


def flag(name: str) -> str:
    """The option as it is typed.

    >>> flag("edit_at"), flag("jobs")
    ('--edit-at', '-n')
    """
    return FLAGS.get(name) or "--" + name.replace("_", "-")


def is_given(value: object) -> bool:
    """Whether an option without a default was given; also where what was given is empty."""
    return value is not None and value is not False


def refuse(given: Given, names: Iterable[str], where: str, hint: str = "") -> None:
    """Refuses options that mean nothing `where`: with or without another one."""
    for name in names:
        if is_given(given[name]):
            raise InputError(f"`{flag(name)}` is given {where}, where it means nothing", hint=hint)


def need(given: Given, pairs: Iterable[tuple[str, str]]) -> None:
    """Refuses the first option of each pair where it is given without the second."""
    for name, needed in pairs:
        if is_given(given[name]) and not is_given(given[needed]):
            raise InputError(f"`{flag(name)}` is given without `{flag(needed)}`, expected that as well")


def filled(given: Given, defaults: Mapping[str, str]) -> dict[str, Any]:
    """What was given, with the defaults of what was not."""
    return {**given, **{name: value for name, value in defaults.items() if given[name] is None}}


def check(given: Given) -> None:
    """Refuses unknown choices and options that contradict each other."""
    for name, known in CHOICES.items():
        if given[name] is not None:
            require_one_of(flag(name), given[name], known)
    need(given, [("no_gate", "mlp")])
    if given["form"] in ("json", "csv") and given["html"] is None:
        refuse(given, ["by"], f"with `--format {given['form']}`", hint="JSON and CSV have every cell")
    special = [name for name in SPECIAL if given[name] is not None]
    if len(special) > 1:
        raise InputError(
            f"`{flag(special[0])}` and `{flag(special[1])}` are both given, expected one of them",
            hint="ask one question at a time",
        )
    for name, others in (("turns", ("prompt", "new")), ("lengths", ("new", "against", "by"))):
        for other in others if given[name] is not None else ():
            if given[other] is not None:
                raise InputError(f"`{flag(name)}` and `{flag(other)}` are both given, expected one of them")
    if given["uncached"] is not None and special not in ([], ["lengths"]):
        raise InputError(
            f"`--uncached` is {given['uncached']!r} with `{flag(special[0])}`, expected neither: both sides are cached"
        )


def decoder(model: str | None, given: Given) -> Decoder:
    """The decoder that MODEL names, or that sizes describe; the lesson where neither is given."""
    described = [name for name in (*SIZES, "no_gate", "o_proj") if is_given(given[name])]
    if described:
        return sized(model, given, described[0])
    source = None if given["source"] is None else integer("source", given["source"], least=1)
    if model is not None:
        from kvtally.pure.model import read_model

        found = read_model(model, source=source)
    elif source is None:
        found = lesson()
    else:
        raise InputError("`--source` is given without a MODEL, expected a model with an encoder")
    if not given["absorbed"]:
        return found
    try:
        return found.absorbed()
    except KvtallyError as error:
        raise error.at("--absorbed") from None


def sized(model: str | None, given: Given, first: str) -> Decoder:
    """The decoder of equal layers that `--layers`, `--hidden` … describe; sizes not given are the lesson's."""
    for other, value in (("MODEL", model), ("--source", given["source"]), ("--absorbed", given["absorbed"])):
        if is_given(value):
            raise InputError(f"`{flag(first)}` and {other} are both given, expected one of them")
    from kvtally.pure.config_fields import MOST_LAYERS

    most = {"layers": MOST_LAYERS}
    sizes = {
        name: integer(name, given[name], least=least, most=most.get(name, LONGEST))
        for name, least in SIZES.items()
        if given[name] is not None
    }
    return Sizes(**sizes, gated=not given["no_gate"], o_proj=given["o_proj"]).decoder()


def questions(decoder: Decoder, model: str | None, given: Given) -> list[Question]:
    """What is asked: one question, or one for each of `--lengths`."""
    plain = all(given[name] is None for name in ("edit_at", "chunk"))
    defaults = LESSON if model is None and plain else REAL if given["against"] is None else RUN
    prompt, new = (
        default if given[name] is None else integer(name, given[name], least=1)
        for name, default in zip(("prompt", "new"), defaults, strict=True)
    )
    by_road = given["against"] == "traced"
    question = Question(
        decoder=decoder,
        prompt=prompt,
        new=new,
        kernel=given["kernel"] or ("dense" if by_road else "causal"),
        loop=given["uncached"] or ("forward" if by_road else decoder.loop),
        batch=integer("batch", given["batch"], least=1),
        edit_at=position(given["edit_at"], prompt),
        turns=() if given["turns"] is None else turns(given["turns"]),
        chunk=None if given["chunk"] is None else integer("chunk", given["chunk"], least=1),
    )
    if given["lengths"] is None:
        return [question]
    return [replace(question, new=length) for length in integers("lengths", given["lengths"])]


def evidence(question: Question, model: str | None, given: Given) -> Evidence | None:
    """The other road that was asked for; for the bare lesson a small copy, executed."""
    if given["against"] == "executed":
        return executed(question)
    if given["against"] == "traced":
        if model is None:
            raise InputError("`--against traced` is given without a MODEL, expected one that transformers can build")
        from kvtally.pure.described import MARK
        from kvtally.pure.model import find_config

        config = {} if model.endswith(".gguf") else find_config(model)[0]
        if not config or MARK in config:
            problem = f"`--against traced` is given with `{model}`, expected a config that transformers can build from"
            raise InputError(problem, hint="use --against executed")
        return traced(question, config)
    bare = model is None and question.kind == "cache" and given["lengths"] is None
    return executed_small(question) if bare else None


def integer(name: str, typed: str, *, least: int, most: int = LONGEST) -> int:
    """The integer that was typed for option `name`."""
    return _whole(flag(name), typed, least, most)


def _whole(name: str, typed: str, least: int, most: int = LONGEST) -> int:
    try:
        value = int(typed)
    except ValueError:
        raise InputError(f"`{name}` is {_brief(typed)}, expected an integer of at least {least:,}") from None
    return require_int(name, value, least=least, most=most)


def number(name: str, typed: str, **bounds: float) -> float:
    """The number that was typed for option `name`; `bounds` are those of `require_number`."""
    try:
        value: object = float(typed)
    except ValueError:
        value = typed
    return require_number(flag(name), value, **bounds)


def _brief(typed: str) -> str:
    return repr(typed if len(typed) <= 40 else typed[:40] + "…")


def position(typed: str | None, prompt: int) -> int | None:
    """Where the prompt is edited: a position in it, from 0."""
    return None if typed is None else integer("edit_at", typed, least=0, most=prompt - 1)


def integers(name: str, typed: str) -> list[int]:
    """The integers of at least 1 that were typed for option `name`.

    >>> integers("lengths", "10,100")
    [10, 100]
    """
    return [_whole(f"{flag(name)}[{k}]", part, 1) for k, part in enumerate(typed.split(","))]


def turns(typed: str) -> tuple[tuple[int, int], ...]:
    """(tokens of the user, tokens generated) of each turn, from `512+128,64+128`.

    >>> turns("512+128,64+128")
    ((512, 128), (64, 128))
    """
    found = []
    for k, part in enumerate(typed.split(",")):
        user, plus, new = part.partition("+")
        if not plus:
            raise InputError(
                f"`--turns[{k}]` is {_brief(part)}, expected tokens of the user + tokens generated",
                hint="write turns as 512+128,64+128",
            )
        found.append((_whole(f"--turns[{k}]", user, 1), _whole(f"--turns[{k}]", new, 1)))
    return tuple(found)
