"""What it is asked: Pass, and the lists: uncached, cached, chunked, edited, conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvtally.core.errors import InputError, require_int, require_one_of

LONGEST = 10**12  # positions; more is taken for a slip of the keyboard

PHASES = ("prefill", "decode")
LOOPS = ("lesson", "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward pass: `new` positions computed over `past` positions that are already cached.

    `logits` is the number of rows that go through the output head. `attending` is the number of
    rows (the last ones) that attend in the last layer: None for all, as frameworks do, 1 for the
    lesson's loop, where old outputs are not needed. `keep` says whether K and V of the new
    positions stay in the cache. `times` says how many passes like it run in a row: kept, each goes
    on where the one before ended; not kept, each starts over and is one token longer.

    >>> [(p.new, p.past) for p in Pass(new=1, past=4, phase="decode", times=3).each()]
    [(1, 4), (1, 5), (1, 6)]
    >>> [(p.new, p.past) for p in Pass(new=4, keep=False, times=3).each()]
    [(4, 0), (5, 0), (6, 0)]
    """

    new: int
    past: int = 0
    phase: str = "prefill"
    logits: int = 1
    attending: int | None = None
    keep: bool = True
    times: int = 1

    def __post_init__(self) -> None:
        require_int("new", self.new, least=1, most=LONGEST)
        require_int("past", self.past, least=0, most=LONGEST)
        require_int("times", self.times, least=1, most=LONGEST)
        require_int("logits", self.logits, least=0, most=self.new)
        require_one_of("phase", self.phase, PHASES)
        require_int("end", self.end, least=1, most=LONGEST)
        if self.attending is None:
            return
        require_int("attending", self.attending, least=1, most=self.new)
        require_int("logits", self.logits, least=0, most=self.attending)
        if self.keep and self.times > 1 and self.attending < self.new:
            raise InputError(
                f"`attending` is {self.attending} over {self.times} passes that continue each other, "
                "expected a single pass or passes that start over",
                hint="write these passes one by one, or set keep=False",
            )

    @property
    def end(self) -> int:
        """Positions that the last of these passes covers, past and new together."""
        growth = self.new if self.keep else 1
        return self.past + self.new + growth * (self.times - 1)

    @property
    def tokens(self) -> int:
        """Token states computed: the sum of `new` over all `times` passes.

        >>> Pass(new=1, keep=False, times=100).tokens, Pass(new=1, times=100).tokens
        (5050, 100)
        """
        growth = 0 if self.keep else self.times * (self.times - 1) // 2
        return self.times * self.new + growth

    def each(self) -> Iterator[Pass]:
        """The single passes, one by one: for whoever runs them rather than counts them."""
        for k in range(self.times):
            if self.keep:
                yield replace(self, past=self.past + k * self.new, times=1)
            else:
                yield replace(self, new=self.new + k, times=1)


Passes = Sequence[Pass]


def uncached(prompt: int, new: int, *, loop: str = "forward") -> tuple[Pass, ...]:
    """The passes that generate `new` tokens after `prompt` tokens without a cache.

    Pass t computes all `prompt + t` positions again, t = 0 … new-1. `loop="forward"` is what
    frameworks do (every row attends in every layer); in `loop="lesson"` K and V of every token are
    rebuilt, but only the newest query attends in the last layer.

    >>> sum(p.tokens for p in uncached(1, 100))
    5050
    """
    _check_lengths(prompt, new)
    require_one_of("loop", loop, LOOPS)
    attending = 1 if loop == "lesson" else None
    first = Pass(new=prompt, attending=attending, keep=False)
    if new == 1:
        return (first,)
    return (first, Pass(new=prompt + 1, phase="decode", attending=attending, keep=False, times=new - 1))


def cached(prompt: int, new: int) -> tuple[Pass, ...]:
    """The passes that generate `new` tokens after `prompt` tokens with a cache: a prefill, then steps.

    The prefill already gives the first token, so `new - 1` decode steps follow.

    >>> sum(p.tokens for p in cached(1, 100))
    100
    """
    return prefix_hit(prompt, 0, new)


def chunked(prompt: int, new: int, chunk: int) -> tuple[Pass, ...]:
    """The passes of `cached`, the prompt computed in chunks of at most `chunk` tokens.

    Only the last chunk makes a row of logits.

    >>> [(p.new, p.past, p.times, p.logits) for p in chunked(7, 1, 3)]
    [(3, 0, 2, 0), (1, 6, 1, 1)]
    """
    _check_lengths(prompt, new)
    require_int("chunk", chunk, least=1, most=LONGEST)
    before = (prompt - 1) // chunk  # full chunks before the last one, which may be shorter
    chunks = (Pass(new=chunk, logits=0, times=before),) if before else ()
    return (*chunks, *prefix_hit(prompt, before * chunk, new))


def prefix_hit(prompt: int, hit: int, new: int) -> tuple[Pass, ...]:
    """The passes for a prompt whose first `hit` tokens are cached already, and `new` generated tokens.

    At least one prompt token is computed again: its logits give the first new token.

    >>> [(p.new, p.past, p.phase, p.times) for p in prefix_hit(10, 8, 4)]
    [(2, 8, 'prefill', 1), (1, 10, 'decode', 3)]
    """
    _check_lengths(prompt, new)
    require_int("hit", hit, least=0, most=prompt - 1)
    first = Pass(new=prompt - hit, past=hit)
    return (first,) if new == 1 else (first, Pass(new=1, past=prompt, phase="decode", times=new - 1))


def edited(length: int, at: int, new: int) -> tuple[Pass, ...]:
    """The passes after the token at position `at` of a cached prompt of `length` tokens is changed.

    Everything from `at` on is computed again, everything before stays: a prefix hit of `at` tokens.

    >>> [(p.new, p.past) for p in edited(10, 4, 1)]
    [(6, 4)]
    """
    require_int("at", at, least=0, most=max(length - 1, 0))
    return prefix_hit(length, at, new)


def conversation(turns: Iterable[tuple[int, int]], *, carried: bool) -> tuple[Pass, ...]:
    """The passes of a conversation, each turn (tokens from the user, tokens generated).

    `carried=True` keeps the cache from turn to turn: a turn computes its own tokens and the last
    token generated before, which was never fed to the model. `carried=False` resends the whole
    conversation and computes it all again each turn.

    >>> [(p.new, p.past, p.times) for p in conversation([(5, 3), (2, 2)], carried=True)]
    [(5, 0, 1), (1, 5, 2), (3, 7, 1), (1, 10, 1)]
    >>> [(p.new, p.past, p.times) for p in conversation([(5, 3), (2, 2)], carried=False)]
    [(5, 0, 1), (1, 5, 2), (10, 0, 1), (1, 10, 1)]
    """
    passes: list[Pass] = []
    length = held = 0
    for user, generated in turns:
        _check_lengths(user, generated)
        length += user
        passes += prefix_hit(length, held if carried else 0, generated)
        length += generated
        held = length - 1
    if not passes:
        raise InputError("`turns` is empty, expected at least one (user tokens, generated tokens)")
    return tuple(passes)


def _check_lengths(prompt: int, new: int) -> None:
    require_int("prompt", prompt, least=1, most=LONGEST)
    require_int("new", new, least=1, most=LONGEST)
