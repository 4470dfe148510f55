"""What a decoder is: layers, and the facts each gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvtally.core.errors import InputError, require_int
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term

WRITES_KV = frozenset({Term.k_proj, Term.v_proj, Term.kv_a_proj, Term.kv_b_proj, Term.compress_proj})
AFTER_ATTENTION = frozenset(
    {Term.o_proj, Term.o_a_proj, Term.o_b_proj, Term.out_proj, Term.v_absorb, Term.cross_q_proj, Term.cross_o_proj}
)


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
        """Everything that mixes positions in this layer: `mixer` first where there is one."""
        return tuple(m for m in (self.mixer, *self.beside, self.cross) if m is not None)

    @property
    def writers(self) -> tuple[bool, ...]:
        """For each of `mixers`, whether its K and V are its own: False for a mixer that reads another layer's."""
        first = 0 if self.mixer and self.reads is not None else None
        return tuple(index != first for index in range(len(self.mixers)))

    def for_every_token(self, hidden_size: int) -> dict[Term, int]:
        """MACs for each new token, by term: what leads to queries, keys, values and states."""
        return self._mixed(hidden_size, after=False)

    def for_attending_rows(self, hidden_size: int) -> dict[Term, int]:
        """MACs for each new row that attends, by term: what follows the attention, and the MLP."""
        mlp = self.mlp.projections(hidden_size) if self.mlp else {}
        return added(self._mixed(hidden_size, after=True), mlp)

    def projections(self, hidden_size: int) -> dict[Term, int]:
        """MACs a token, by term: of mixers (without K and V where they are shared) and MLP."""
        return added(self.for_every_token(hidden_size), self.for_attending_rows(hidden_size))

    def surplus(self, hidden_size: int) -> int:
        """MACs for each new row that attends which transformers makes and the model does not need."""
        return self.mlp.surplus(hidden_size) if self.mlp else 0

    @property
    def surplus_a_pair(self) -> tuple[int, ...]:
        """For each of `mixers`, MACs for each query-key pair which transformers makes and the model does not need."""
        return tuple(m.scored_again if isinstance(m, Attention) else 0 for m in self.mixers)

    def _mixed(self, hidden_size: int, *, after: bool) -> dict[Term, int]:
        terms: dict[Term, int] = {}
        for mixer, writes in zip(self.mixers, self.writers, strict=True):
            wanted = {t: n for t, n in mixer.projections(hidden_size).items() if (t in AFTER_ATTENTION) == after}
            terms = added(terms, {t: n for t, n in wanted.items() if writes or t not in WRITES_KV})
        return terms

    def held(self, context: int) -> int:
        """Elements this layer holds for a sequence of `context` tokens: K, V and recurrent state."""
        own = (m for m, writes in zip(self.mixers, self.writers, strict=True) if writes)
        return sum(m.state + sum(m.kv_per_token) * m.tokens_held(context) for m in own)

    @property
    def conv_channels(self) -> int:
        """Channels that pass a causal convolution: elements that one tap of all its convolutions holds."""
        return sum(m.conv_channels for m in self.mixers if isinstance(m, Recurrent))

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

    `vocab_size` 0 means no output head. `outside` are matrices outside the layers that every token
    goes through, `head` those that every row of logits goes through before the output head, both
    (inputs, outputs); the output head reads what the last of `head` gives. `name` is for people and
    does not take part in comparisons.

    >>> lesson().held(100)  # K and V, 64 wide, of 100 tokens
    12800
    """

    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    outside: tuple[tuple[int, int], ...] = ()
    head: tuple[tuple[int, int], ...] = ()
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        require_int("hidden_size", self.hidden_size, least=1)
        require_int("vocab_size", self.vocab_size, least=0)
        for where, sizes in (("outside", self.outside), ("head", self.head)):
            for size in (size for matrix in sizes for size in matrix):
                require_int(where, size, least=1)
        if not self.layers:
            raise InputError("`layers` is empty, expected at least one Layer")
        for index, layer in enumerate(self.layers):
            if layer.reads is not None:
                _check_donor(self.layers, index, layer)

    @property
    def loop(self) -> str:
        """The uncached loop that is meant when none is named: `lesson` for one layer, else `forward`."""
        return "lesson" if len(self.layers) == 1 else "forward"

    @property
    def head_inputs(self) -> int:
        """How wide a row is that the output head reads: outputs of the last matrix of `head`, else hidden_size."""
        return self.head[-1][1] if self.head else self.hidden_size

    def held(self, context: int) -> int:
        """Elements that the cache of one sequence of `context` tokens holds, over all layers.

        A layer whose K and V others read holds what the furthest looking of them needs.
        """
        require_int("context", context, least=0)
        more = 0
        for index, layer in enumerate(self.layers):
            readers = [r.mixer for r in self.layers if r.reads == index and r.mixer]
            if layer.mixer and readers:
                furthest = max(m.tokens_held(context) for m in (layer.mixer, *readers))
                more += sum(layer.mixer.kv_per_token) * (furthest - layer.mixer.tokens_held(context))
        return more + sum(layer.held(context) for layer in self.layers)

    def absorbed(self) -> Decoder:
        """The same decoder with kv_b_proj absorbed in every latent attention, as engines run it."""
        layers = tuple(
            replace(layer, mixer=replace(layer.mixer, absorbed=True, per_head=False))
            if isinstance(layer.mixer, LatentAttention)
            else layer
            for layer in self.layers
        )
        if layers == self.layers:
            raise InputError("no layer has latent attention to absorb kv_b_proj into, expected at least one")
        return replace(self, layers=layers)

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
            outside=tuple((min(i, 7), min(o, 5)) for i, o in self.outside),
            head=tuple((min(i, 7), min(o, 5)) for i, o in self.head),
            name=f"{self.name}, shrunk".lstrip(", "),
        )


def lesson(tokens_wide: int = 64) -> Decoder:
    """The decoder of the lesson: one layer, one head, no MLP, no output projection, no output head.

    >>> lesson(4).layers[0].projections(4)[Term.q_proj]  # 4 * 4
    16
    """
    head = Attention(num_heads=1, num_kv_heads=1, head_dim=tokens_wide, output=False)
    return Decoder(hidden_size=tokens_wide, vocab_size=0, layers=(Layer(mixer=head),), name="the lesson")


def _check_donor(layers: tuple[Layer, ...], index: int, layer: Layer) -> None:
    where = f"layers[{index}].reads"
    require_int(where, layer.reads, least=0, most=max(index - 1, 0))
    donor = layers[layer.reads or 0]
    if donor.reads is not None or donor is layer:
        raise InputError(f"`{where}` is {layer.reads}, expected an earlier layer that has K and V of its own")
    if not layer.mixer or not donor.mixer or _kv_shape(layer.mixer) != _kv_shape(donor.mixer):
        raise InputError(f"`{where}` is {layer.reads}, whose K and V have other sizes than this layer reads")
    if not any(layer.mixer.kv_per_token):
        raise InputError(f"`{where}` is {layer.reads}, expected a layer with K and V to share")


def added(a: Mapping[Term, int], b: Mapping[Term, int]) -> dict[Term, int]:
    """The sum of MACs by term."""
    return {term: a.get(term, 0) + b.get(term, 0) for term in (*a, *(t for t in b if t not in a))}


def kv_heads(mixer: Mixer) -> int:
    """Heads that keep K and V of their own: 1 for a latent, compressed entries, index keys, which serve all heads."""
    if isinstance(mixer, Attention | CrossAttention):
        return mixer.num_kv_heads
    return mixer.num_heads if isinstance(mixer, LatentAttention) and mixer.per_head else 1


def _kv_shape(mixer: Mixer) -> tuple[object, ...]:
    return (type(mixer), kv_heads(mixer), mixer.kv_per_token)


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
