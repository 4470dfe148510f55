"""Decoders of attention that sees everything and a dense MLP, and the parts that other families share with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.pure.config_fields import CLASS_DEFAULT, HINT, MOST_LAYERS, Fields

FULL, SLIDING = "full_attention", "sliding_attention"
Part = TypeVar("Part", Mlp, Experts)
Matrices = tuple[tuple[int, int], ...]  # inputs and outputs of each


def llama(f: Fields) -> Decoder:
    """Llama: every layer sees everything, gated MLP."""
    return stack(f, full(f), mlps(f))


def plain(f: Fields) -> Decoder:
    """Apertus, Arcee, Nemotron and others: as Llama, MLP without a gate."""
    return stack(f, full(f), mlps(f, gated=False))


def apertus(f: Fields) -> Decoder:
    """Apertus 1.5: an output head of `output_vocab_size` where the embedding also has tokens never put out."""
    said = f.optional("output_vocab_size")
    return replace(plain(f), vocab_size=f.integer("vocab_size") if said is None else said)


def whole(f: Fields) -> Decoder:
    """StableLM and Helium: as Llama, heads always hidden_size / heads wide."""
    whole_head_dim(f)
    return llama(f)


def diffllama(f: Fields) -> Decoder:
    """DiffLlama: two softmaxes are subtracted, each mixing values twice as wide; K and V as in Llama."""
    mixer = attention(f)
    if mixer.num_kv_heads % 2:
        raise InputError(f"{f.said('num_key_value_heads')}, expected an even number: values are read in pairs")
    return stack(f, full(f), mlps(f), mixer=replace(mixer, differential=True))


# Parts


def stack(
    f: Fields,
    windows: Sequence[int | None],
    mlps: Sequence[Mlp | Experts],
    *,
    mixer: Attention | None = None,
    beside: tuple[Mixer, ...] = (),
) -> Decoder:
    """The decoder whose layers have these windows and these MLPs, attention of one size everywhere.

    `mixer` is that attention where it is not the usual one; `beside` runs beside it in every layer.
    """
    sized = {w: replace(mixer or attention(f), window=w) for w in dict.fromkeys(windows)}
    return decoder(
        f, tuple(Layer(mixer=sized[w], mlp=mlp, beside=beside) for w, mlp in zip(windows, mlps, strict=True))
    )


def decoder(f: Fields, layers: tuple[Layer, ...], *, outside: Matrices = (), head: Matrices = ()) -> Decoder:
    """The decoder of these layers, with its sizes outside them."""
    hidden, vocab = f.integer("hidden_size"), f.integer("vocab_size")
    return Decoder(hidden_size=hidden, vocab_size=vocab, layers=layers, outside=outside, head=head, name=f.model_type)


def depth(f: Fields) -> int:
    """How many layers there are."""
    return f.integer("num_hidden_layers", most=MOST_LAYERS)


def attention(f: Fields, *, window: int | None = None) -> Attention:
    """Attention: GQA where the config says so (null: as many KV heads as heads), an explicit head_dim first."""
    heads = f.integer("num_attention_heads")
    kv = f.optional("num_key_value_heads")
    if kv is None:
        kv = f.derive("num_key_value_heads", heads, "num_attention_heads")
    if heads % kv:
        refuse_groups(f, "num_key_value_heads")
    width = (f.optional("head_dim") if f.knows("head_dim") else None) or whole_head_dim(f)
    return Attention(num_heads=heads, num_kv_heads=kv, head_dim=width, window=window)


def mha(f: Fields) -> Attention:
    """Attention with a KV head for each head, hidden_size / heads wide."""
    heads = f.integer("num_attention_heads")
    f.agrees("num_key_value_heads", heads, f"`{f.model_type}` has one KV head for each head")
    return Attention(num_heads=heads, num_kv_heads=heads, head_dim=whole_head_dim(f))


def whole_head_dim(f: Fields) -> int:
    """hidden_size / heads, refused where that is no integer, or where the config says another head_dim."""
    heads, hidden = f.integer("num_attention_heads"), f.integer("hidden_size")
    if hidden % heads:
        both = f"{f.said('hidden_size')} and {f.said('num_attention_heads')}"
        raise InputError(f"{both}, expected a whole number for each head, or a `head_dim`")
    f.agrees("head_dim", hidden // heads, "a head is hidden_size / heads wide here")
    return f.derive("head_dim", hidden // heads, "hidden_size / num_attention_heads")


def mlps(f: Fields, *, gated: bool = True) -> tuple[Mlp, ...]:
    """A dense MLP of `intermediate_size` in every layer."""
    return repeat(f, Mlp(width=f.integer("intermediate_size"), gated=gated))


def repeat(f: Fields, part: Part) -> tuple[Part, ...]:
    """The same part in every layer."""
    return (part,) * depth(f)


# Windows, one a layer; None sees everything


def full(f: Fields) -> tuple[None, ...]:
    """No layer slides."""
    expect_kind(f, FULL, f"`{f.model_type}` attends to everything in every layer")
    return (None,) * depth(f)


def sliding_everywhere(f: Fields) -> tuple[int | None, ...]:
    """Every layer slides by `sliding_window`; none where that is null."""
    window = f.optional("sliding_window")
    expect_kind(f, FULL if window is None else SLIDING, f"{f.said('sliding_window')}, for every layer")
    return (window,) * depth(f)


def sliding_late(f: Fields) -> tuple[int | None, ...]:
    """Layers from `max_window_layers` on slide, or those `layer_types` names, once `use_sliding_window` is true."""
    if not f.flag("use_sliding_window"):
        expect_kind(f, FULL, f"{f.said('use_sliding_window')}")
        f.set_aside("sliding_window", "max_window_layers", note="use_sliding_window is false")
        return (None,) * depth(f)
    return sliding_from(f)


def sliding_from(f: Fields) -> tuple[int | None, ...]:
    """Layers from `max_window_layers` on slide, unless `layer_types` says otherwise."""
    kinds, window = layer_types(f), f.optional("sliding_window")
    if kinds is not None:
        f.set_aside("max_window_layers", note="layer_types says which layers slide")
        return windows_of(f, kinds, window)
    first = f.integer("max_window_layers", least=0)
    if window is None:
        f.set_aside("use_sliding_window", "max_window_layers", note="sliding_window is null")
    elif first >= depth(f):
        f.set_aside("use_sliding_window", "sliding_window", note="max_window_layers: no layer slides")
    return tuple(window if index >= first else None for index in range(depth(f)))


def alternating(f: Fields, *, every: int) -> tuple[int | None, ...]:
    """Every `every`-th layer sees everything and the others slide, unless `layer_types` says otherwise."""
    kinds = layer_types(f)
    rule = tuple(SLIDING if (index + 1) % every else FULL for index in range(depth(f)))
    if kinds is None:
        source = "sliding_window_pattern" if f.has("sliding_window_pattern") else CLASS_DEFAULT
        f.derive("layer_types", f"{FULL} every {every}, else {SLIDING}", source)
    elif f.has("sliding_window_pattern") and kinds != rule:
        where = next(i for i, (a, b) in enumerate(zip(kinds, rule, strict=True)) if a != b)
        said = f"`layer_types[{where}]` is `{kinds[where]}` and {f.said('sliding_window_pattern')}"
        raise InputError(f"{said}, expected that they agree, or one of them only")
    return windows_of(f, kinds or rule, f.optional("sliding_window"))


def layer_types(f: Fields) -> tuple[str, ...] | None:
    """The kind of each layer as the config lists them, or None where it does not."""
    kinds = f.words("layer_types", (FULL, SLIDING))
    if kinds is not None and len(kinds) != depth(f):
        said = f"`layer_types` has {len(kinds):,} entries and {f.said('num_hidden_layers')}"
        raise InputError(f"{said}, expected one for each layer")
    return kinds


def windows_of(f: Fields, kinds: tuple[str, ...], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer by its kind; a sliding layer without a window is refused."""
    if window is None and SLIDING in kinds:
        where = f"layer_types[{kinds.index(SLIDING)}]"
        raise InputError(f"`{where}` is `{SLIDING}` and {f.said('sliding_window')}, expected a window")
    if SLIDING not in kinds:
        f.set_aside("sliding_window", note="no layer slides")
    return tuple(window if kind == SLIDING else None for kind in kinds)


def expect_kind(f: Fields, kind: str, because: str) -> None:
    for index, found in enumerate(layer_types(f) or ()):
        if found != kind:
            raise InputError(f"`layer_types[{index}]` is `{found}`, expected `{kind}`: {because}", hint=HINT)


def refuse_two_ways(f: Fields) -> None:
    f.agrees("use_bidirectional_attention", False, "tokens that see later ones have no cache")


def refuse_groups(f: Fields, kv: str) -> None:
    both = f"{f.said('num_attention_heads')} and {f.said(kv)}"
    raise InputError(f"{both}, expected a whole number of query heads for each KV head")


LIKE_LLAMA = (
    "llama", "bitnet", "cohere", "ernie4_5", "exaone", "gemma", "glm", "glm4", "granite",
    "hunyuan_v1_dense", "hyperclovax", "internlm3", "iquestcoder", "olmo", "olmo2", "seed_oss",
)  # fmt: skip
WITHOUT_A_GATE = ("apertus", "arcee", "jais2", "nanochat", "nemotron", "phi")

FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dict.fromkeys(LIKE_LLAMA, llama),
    **dict.fromkeys(WITHOUT_A_GATE, plain),
    "apertus1p5_text": apertus,
    **dict.fromkeys(("stablelm", "helium"), whole),
    "diffllama": diffllama,
}
