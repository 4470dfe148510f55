"""GGUF metadata of Gemma 3n and 4: layers that read an earlier layer's K and V, matrices beside every layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.pure.config_recurrent import further
from kvtally.pure.gguf_keys import Keys
from kvtally.pure.gguf_parts import WIDTH, as_listed, attentions, decoder, everywhere, experts, having, in_turn, mlps

SHARED, OWN_INPUT = "attention.shared_kv_layers", "embedding_length_per_layer_input"


def gemma3n(k: Keys) -> Decoder:
    """Gemma 3n: streams of hidden states (AltUp), a low-rank path (Laurel), an input for each layer."""
    windows = in_turn(5)(k)
    layers, hidden, own = len(windows), k.integer("embedding_length", least=1), k.integer(OWN_INPUT, least=1)
    first = min(layers, int(k.derive("first shared layer", 20, k.built_in))) if not k.has(SHARED) else _first(k, layers)
    streams, rank = k.integer("altup.num_inputs", least=1), int(k.derive("laurel_rank", 64, k.built_in))
    k.set_aside("altup.active_idx", note="which of the streams goes first")
    mixing = (*((None, streams),) * 2, (streams, streams * streams), (streams, streams), (None, streams * streams))
    beside = further(*mixing, (None, rank), (rank, None), (None, own), (own, None))
    made = _sharing(k, windows, everywhere(k, attentions(k, windows)), mlps(k), beside=beside, first=first)
    return decoder(k, made, outside=((hidden, layers * own), *((hidden, hidden),) * (2 * (streams - 1))))


def gemma4(k: Keys) -> Decoder:
    """Gemma 4: heads of two sizes, experts beside a dense MLP, K that is also V in full layers without attn_v."""
    windows = as_listed(k)
    layers, hidden, own = len(windows), k.integer("embedding_length", least=1), k.integer(OWN_INPUT, default=0)
    first = _first(k, layers)
    has_v = having(k, "attn_v", "where K is V as well")
    mixers = [
        replace(mixer, k_is_v=mixer.window is None and not has_v[_donor(k, windows, index, first) or index])
        for index, mixer in enumerate(everywhere(k, attentions(k, windows)))
    ]
    of_mlp: Sequence[Mlp | Experts] = (_experts(k),) * layers if k.integer("expert_count", default=0) else mlps(k)
    beside = further((None, own), (own, None)) if own else ()
    made = _sharing(k, windows, mixers, of_mlp, beside=beside, first=first)
    return decoder(k, made, outside=((hidden, layers * own),) if own else ())


def _experts(k: Keys) -> Experts:
    """Experts, the dense MLP beside them being what is always on."""
    return replace(experts(k), shared=k.integer(WIDTH, least=1))


def _first(k: Keys, layers: int) -> int:
    """The index of the first layer that reads K and V of an earlier one."""
    return layers - k.integer(SHARED, most=layers - 1, default=0)


def _sharing(
    k: Keys,
    windows: Sequence[int | None],
    mixers: Sequence[Attention],
    of_mlp: Sequence[Mlp | Experts],
    *,
    beside: tuple[Mixer, ...],
    first: int,
) -> tuple[Layer, ...]:
    """The layers; those from `first` on read K and V of the last layer of their kind before it."""
    rows = enumerate(zip(mixers, of_mlp, strict=True))
    return tuple(
        Layer(mixer=mixer, mlp=mlp, beside=beside, reads=_donor(k, windows, index, first))
        for index, (mixer, mlp) in rows
    )


def _donor(k: Keys, windows: Sequence[int | None], index: int, first: int) -> int | None:
    """The last layer before `first` that slides as layer `index` does; None where that has K and V of its own."""
    if index < first:
        return None
    alike = [i for i in range(first) if (windows[i] is None) == (windows[index] is None)]
    if not alike:
        raise InputError(f"`{k.arch}`: layer {index} shares K and V, and none of the first {first} layers is like it")
    return alike[-1]


READERS: dict[str, Callable[[Keys], Decoder]] = {"gemma3n": gemma3n, "gemma4": gemma4}
