"""What one tiny model showed: built, run, read, held, traced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.mixer import Mixer
from kvtally.core.tally import Difference, Term

EXACT_TAPS = frozenset({"zaya", "recurrent_gemma"})  # keep the taps that are needed, where others keep one more

# Made element by element, without a product that a trace could see; and states, which no cache is handed.
UNSEEN = frozenset({Term.index_sum, Term.state_update, Term.state_read, Term.conv1d, "state"})


FAR = 1000  # tokens: longer than any window of a tiny model


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one question about an architecture came out: `ok` None where it was not asked."""

    ok: bool | None = None
    note: str = ""


UNASKED = Outcome()
GOOD = Outcome(ok=True)


def bad(error: BaseException) -> Outcome:
    """An outcome for an error: its class and the first lines of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return Outcome(ok=False, note=f"{type(error).__name__}: {' '.join(lines[:2])[:240]}".rstrip(": "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One architecture of the zoo: which model was made of it, and how each question came out.

    `held`: the decoder's held elements are the real cache's. `traced`: closed = traced in `cells`
    cells; `unseen` names those that tracing cannot see, with their number, and `unplaced` the
    products that were seen and belong to no term.

    >>> Row(name="llama", traced=Outcome(ok=False, note="2 cells differ")).wrong
    True
    """

    name: str
    model: str = ""
    layers: int = 0
    built: Outcome = UNASKED
    ran: Outcome = UNASKED
    read: Outcome = UNASKED
    held: Outcome = UNASKED
    traced: Outcome = UNASKED
    cells: int = 0
    unseen: Mapping[str, int] = field(default_factory=dict)
    unplaced: tuple[str, ...] = ()
    transformers: str = ""

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The questions in order, and how they came out."""
        return {name: getattr(self, name) for name in QUESTIONS}

    @property
    def wrong(self) -> bool:
        """Whether something that kvtally says of this architecture is not so, or did not run on a built model."""
        fails = bool(self.read.ok) and self.ran.ok is False
        return fails or self.held.ok is False or self.traced.ok is False

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return asdict(self) | {"unseen": dict(self.unseen), "unplaced": list(self.unplaced)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Row:
        """The row that `to_dict` wrote."""
        asked = {name: Outcome(**fields[name]) for name in QUESTIONS}
        return cls(**{**fields, **asked, "unplaced": tuple(fields["unplaced"])})


QUESTIONS = ("built", "ran", "read", "held", "traced")


def unseen(differences: Iterable[Difference]) -> tuple[list[Difference], dict[str, int]]:
    """Differences in cells that tracing can see, and the number of those in cells that it cannot, by name."""
    seen: list[Difference] = []
    missed: dict[str, int] = {}
    for difference in differences:
        name = difference.cell[-1] if difference.cell else ""
        if name in UNSEEN and difference.right == 0:
            missed[str(name)] = missed.get(str(name), 0) + 1
        else:
            seen.append(difference)
    return seen, missed


def kept(decoder: Decoder, context: int) -> list[tuple[int, str]]:
    """Elements each layer's cache has in transformers after `context` tokens, and how that differs from what is held.

    One token less of a window or chunk that is full, and a tap more of a convolution; tokens that wait to
    be pooled into compressed entries.
    """
    if decoder.name == "deepseek_v4":
        return [_pooling(layer, context) for layer in decoder.layers]
    spare = decoder.name not in EXACT_TAPS
    return [_kept(layer, context, spare=spare) for layer in decoder.layers]


def _kept(layer: Layer, context: int, *, spare: bool) -> tuple[int, str]:
    elements, notes = layer.held(context), []
    for mixer, writes in zip(layer.mixers, layer.writers, strict=True):
        if not writes:
            continue
        if mixer is not layer.cross and _is_full(mixer, context):
            elements -= sum(mixer.kv_per_token)
            notes.append("window - 1")
    if spare and layer.conv_channels:
        elements += layer.conv_channels
        notes.append("k taps")
    return elements, " and ".join(dict.fromkeys(notes))


def _pooling(layer: Layer, context: int) -> tuple[int, str]:
    """The same of a layer with compressed attention; its one tensor for K and V is two where nothing is pooled."""
    mixer: Any = layer.mixer
    elements = layer.held(context) - (mixer.head_dim if context >= mixer.window else 0)
    if mixer.ratio is None:
        return 2 * elements, "window - 1 and V apart"
    indexers: tuple[Any, ...] = tuple(m for m in layer.beside if any(m.kv_per_token))
    waiting = sum(m.waiting(context) for m in (mixer, *indexers))
    return elements + waiting, "window - 1 and tokens that wait to be pooled"


def _is_full(mixer: Mixer, context: int) -> bool:
    """Whether a token more would push one out, however many come."""
    return mixer.tokens_held(context) == mixer.tokens_held(context + FAR) > 0
