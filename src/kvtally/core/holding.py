"""What each layer keeps: rows of K, V, latents, index keys, and states, by part."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer, kv_heads
from kvtally.core.errors import InputError, require_int
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention, Mixer
from kvtally.core.recurrent_mixer import Recurrent

LARGEST = 10**6  # devices; more is taken for a slip of the keyboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Rows of `width` elements that one mixer keeps: `heads` of them for each token held, or once if it is a state.

    `part` is k, v, latent, index, conv, state or cross; `values` tells V from K. `mixer` is whose they are,
    `readers` are those of layers that read them too. `grows` False: they are kept once, whatever the context.
    `taps`: they are inputs of a convolution, a row for each tap but the newest.

    >>> from kvtally.core.decoder import lesson
    >>> [(h.part, h.heads, h.width, h.tokens(100)) for h in holdings(lesson())[0]]
    [('k', 1, 64, 100), ('v', 1, 64, 100)]
    """

    part: str
    heads: int
    width: int
    mixer: Mixer
    values: bool = False
    grows: bool = True
    taps: bool = False
    readers: tuple[Mixer, ...] = ()

    def tokens(self, context: int) -> int:
        """Tokens (or entries for several of them) kept once `context` tokens are there; 1 for a state.

        As many as the furthest looking of those that read them needs.
        """
        if not self.grows:
            return 1
        held = self.mixer.tokens_held(context)
        return max(held, *(m.tokens_held(context) for m in self.readers)) if self.readers else held


def holdings(decoder: Decoder, *, tensor_parallel: int = 1) -> tuple[tuple[Holding, ...], ...]:
    """What each layer keeps of its own on one of `tensor_parallel` devices.

    KV heads are divided among devices, or repeated where there are fewer of them; one latent or index key
    serves all heads and is on every device; states are divided by their heads. What does not divide is
    refused. Layers of the same mixers have one tuple of holdings.
    """
    require_int("tensor_parallel", tensor_parallel, least=1, most=LARGEST)
    readers: dict[int, list[Mixer]] = {}
    for layer in decoder.layers:
        if layer.reads is not None and layer.mixer:
            readers.setdefault(layer.reads, []).append(layer.mixer)
    made: dict[tuple[int, ...], tuple[Holding, ...]] = {}
    found = []
    for index, layer in enumerate(decoder.layers):
        alike = (layer.reads is None, id(layer.mixer), id(layer.cross), *map(id, layer.beside))
        if alike not in made:
            own = (m for m, writes in zip(layer.mixers, layer.writers, strict=True) if writes)
            parts = (h for mixer in own for h in rows_of(layer, mixer, tensor_parallel))
            made[alike] = tuple(h for h in parts if h.heads and h.width)
        kept = made[alike]
        if index in readers:
            more = tuple(readers[index])
            kept = tuple(replace(h, readers=more) if h.mixer is layer.mixer and h.grows else h for h in kept)
        found.append(kept)
    return tuple(found)


def rows_of(layer: Layer, mixer: Mixer, tp: int = 1) -> tuple[Holding, ...]:
    """What a mixer of `layer` keeps on one of `tp` devices, or reads where another layer keeps it for it."""
    if isinstance(mixer, Recurrent):
        return _state(mixer, tp)
    heads = kv_heads(mixer)
    if isinstance(mixer, Attention | CrossAttention | LatentAttention | CompressedAttention):
        _whole("query heads", mixer.num_heads, tp)
    names = _names(mixer, cross=mixer is layer.cross)
    each = _divided("KV heads", heads, tp)
    k, v = mixer.kv_per_token
    return (
        Holding(part=names[0], heads=each, width=k // heads, mixer=mixer),
        Holding(part=names[1], heads=each, width=v // heads, mixer=mixer, values=True),
    )


def _names(mixer: Mixer, *, cross: bool) -> tuple[str, str]:
    """What the keys and the values of a mixer are called."""
    if cross:
        return "cross", "cross"
    if isinstance(mixer, LatentAttention) and not mixer.per_head:
        return "latent", "latent"
    return ("index", "index") if isinstance(mixer, Indexer) else ("k", "v")


def _state(mixer: Recurrent, tp: int) -> tuple[Holding, ...]:
    heads = _whole("state heads", mixer.num_heads, tp)
    scanned = _whole("scanned elements", mixer.scanned, tp)
    taps, channels = mixer.conv_kernel - 1, _channels(mixer, tp)
    conv = Holding(part="conv", heads=taps, width=channels, mixer=mixer, grows=False, taps=True)
    shift = Holding(part="conv", heads=1, width=mixer.shifted, mixer=mixer, grows=False)
    state = Holding(part="state", heads=heads, width=mixer.key_dim * mixer.value_dim, mixer=mixer, grows=False)
    return conv, shift, state, Holding(part="state", heads=1, width=scanned, mixer=mixer, grows=False)


def _channels(mixer: Recurrent, tp: int) -> int:
    """Channels of the convolution on one device: values by heads, keys and queries by their groups of heads.

    conv_channels = heads * value_dim + 2 * groups * key_dim; groups are repeated where they are fewer than devices.
    """
    values = mixer.num_heads * mixer.value_dim
    groups, rest = divmod(mixer.conv_channels - values, 2 * mixer.key_dim)
    if tp == 1 or not mixer.num_heads or groups < 0 or rest:
        return _whole("convolved channels", mixer.conv_channels, tp)
    return values // tp + 2 * mixer.key_dim * (_divided("state groups", groups, tp) if groups else 0)


def _divided(what: str, heads: int, tp: int) -> int:
    """Heads on each device: an equal share, or one, repeated, where there are fewer heads than devices."""
    if heads < tp and tp % heads == 0:
        return 1
    return _whole(what, heads, tp)


def _whole(what: str, many: int, tp: int) -> int:
    if many % tp:
        raise InputError(
            f"`tensor_parallel` is {tp} and a layer has {many:,} {what}, expected a size that divides them",
            hint=f"use {_nearest(many, tp)} devices",
        )
    return many // tp


def _nearest(many: int, tp: int) -> int:
    """The largest number of devices of at most `tp` that divides."""
    return max(n for n in range(1, tp + 1) if many % n == 0)
