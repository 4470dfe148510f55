"""What a decoder is: layers, and the facts each gives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvtally.core.errors import InputError, require_int
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.tally import Term

WRITES_KV = frozenset({Term.k_proj, Term.v_proj, Term.kv_a_proj})
AFTER_ATTENTION = frozenset({Term.o_proj, Term.out_proj, Term.v_absorb, Term.cross_q_proj, Term.cross_o_proj})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer: what mixes positions, what follows it, and whose K and V it uses.

    `mixer` is None for a layer without attention or recurrence. `beside` are mixers that run on the
    same positions as well (the recurrent half of a parallel hybrid). `reads` is the index of the
    earlier layer whose K and V it shares, or None. `cross` is attention to an encoder's output.

    >>> layer = Layer(mixer=Attention(num_heads=4, num_kv_heads=2, head_dim=8), mlp=Mlp(width=48))
    >>> layer.projections(16)[Term.k_proj]  # 16 * 2 * 8
    256
    """

    mixer: Mixer | None = None
    mlp: Mlp | Experts | None = None
    reads: int | None = None
    cross: Mixer | None = None
    beside: tuple[Mixer, ...] = ()

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """Everything that mixes positions in this layer."""
        return tuple(m for m in (self.mixer, *self.beside, self.cross) if m is not None)

    def projections(self, hidden_size: int) -> dict[Term, int]:
        """MACs a token, by term: projections of the mixers (without K and V where they are shared) and MLP."""
        terms = dict(self.mlp.projections(hidden_size)) if self.mlp else {}
        for mixer in self.mixers:
            shared = mixer is self.mixer and self.reads is not None
            for term, macs in mixer.projections(hidden_size).items():
                if not (shared and term in WRITES_KV):
                    terms[term] = terms.get(term, 0) + macs
        return terms

    def follows_attention(self, term: Term) -> bool:
        """Whether only rows that attend need `term`: the output projections and the MLP."""
        return term in AFTER_ATTENTION or (self.mlp is not None and term in self.mlp.projections(1))

    def held(self, context: int) -> int:
        """Elements this layer holds for a sequence of `context` tokens: K, V and recurrent state."""
        own = (m for m in self.mixers if not (m is self.mixer and self.reads is not None))
        return sum(m.state + sum(m.kv_per_token) * m.tokens_held(context) for m in own)

    def shrunk(self) -> Layer:
        """The same kind of layer with small sizes."""
        return replace(
            self,
            mixer=self.mixer and self.mixer.shrunk(),
            mlp=self.mlp and self.mlp.shrunk(),
            cross=self.cross and self.cross.shrunk(),
            beside=tuple(m.shrunk() for m in self.beside),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """What a decoder-only model (or the decoder of an encoder-decoder) is, as far as its cost goes.

    `vocab_size` 0 means no output head. `name` is for people and does not take part in comparisons.

    >>> lesson().held(100)  # K and V, 64 wide, of 100 tokens
    12800
    """

    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        require_int("hidden_size", self.hidden_size, least=1)
        require_int("vocab_size", self.vocab_size, least=0)
        if not self.layers:
            raise InputError("`layers` is empty, expected at least one Layer")
        for index, layer in enumerate(self.layers):
            if layer.reads is not None:
                _check_donor(self.layers, index, layer)

    @property
    def loop(self) -> str:
        """The uncached loop that is meant when none is named: `lesson` for one layer, else `forward`."""
        return "lesson" if len(self.layers) == 1 else "forward"

    def held(self, context: int) -> int:
        """Elements that the cache of one sequence of `context` tokens holds, over all layers."""
        require_int("context", context, least=0)
        return sum(layer.held(context) for layer in self.layers)

    def shrunk(self) -> Decoder:
        """The same pattern with small sizes: at most two layers of each kind, in order, and their donors.

        Layer kinds, grouping, windows, experts and sharing are kept, so that any real decoder can be
        executed by hand.
        """
        kept = _pattern(self.layers)
        place = {old: new for new, old in enumerate(kept)}
        layers = tuple(
            replace(self.layers[i].shrunk(), reads=None if (r := self.layers[i].reads) is None else place[r])
            for i in kept
        )
        return Decoder(
            hidden_size=min(self.hidden_size, 7),
            vocab_size=min(self.vocab_size, 11),
            layers=layers,
            name=f"{self.name}, shrunk".lstrip(", "),
        )


def lesson(tokens_wide: int = 64) -> Decoder:
    """The decoder of the lesson: one layer, one head, no MLP, no output projection, no output head."""
    head = Attention(num_heads=1, num_kv_heads=1, head_dim=tokens_wide, output=False)
    return Decoder(hidden_size=tokens_wide, vocab_size=0, layers=(Layer(mixer=head),), name="the lesson")


def _check_donor(layers: tuple[Layer, ...], index: int, layer: Layer) -> None:
    where = f"layers[{index}].reads"
    require_int(where, layer.reads, least=0, most=max(index - 1, 0))
    donor = layers[layer.reads or 0]
    if donor.reads is not None or donor is layer:
        raise InputError(f"`{where}` is {layer.reads}, expected an earlier layer that has K and V of its own")
    if not layer.mixer or not donor.mixer or layer.mixer.kv_per_token != donor.mixer.kv_per_token:
        raise InputError(f"`{where}` is {layer.reads}, whose K and V have other sizes than this layer reads")


def _pattern(layers: tuple[Layer, ...]) -> list[int]:
    """Indices of at most two layers of each kind, with the layers whose K and V they share."""
    seen: dict[Layer, int] = {}
    kept: set[int] = set()
    for index, layer in enumerate(layers):
        kind = replace(layer, reads=None if layer.reads is None else 0)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= 2:
            kept |= {index} if layer.reads is None else {index, layer.reads}
    return sorted(kept)
