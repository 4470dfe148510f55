"""Decoders of attention that sees everything and a dense MLP, and the parts that other families share with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeVar

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
    if f.optional("num_key_value_heads") is None:
        kv = f.derive("num_key_value_heads", heads, "num_attention_heads")
    else:
        kv = kv_heads(f, f, "num_key_value_heads")
    width = (f.optional("head_dim") if f.knows("head_dim") else None) or whole_head_dim(f)
    return Attention(num_heads=heads, num_kv_heads=kv, head_dim=width, window=window)


def kv_heads(f: Fields, own: Fields, name: str) -> int:
    """The KV heads that the field `name` of `own` says, each of which serves a whole number of heads."""
    kv = own.integer(name)
    if f.integer("num_attention_heads") % kv:
        refuse_groups(f, own.said(name))
    return kv


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


def routing(f: Fields, number: str, chosen: str) -> tuple[int, int]:
    """How many experts there are, and how many of them each token chooses: the fields of these names."""
    many, picked = f.integer(number), f.integer(chosen)
    if picked > many:
        both = f"{f.said(chosen)} and {f.said(number)}"
        raise InputError(f"{both}, expected at most as many experts a token as there are")
    return many, picked


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
    pattern = "sliding_window_pattern"
    given = pattern in f.facts  # where the class reads one
    if kinds is None:
        f.derive("layer_types", f"{FULL} every {every}, else {SLIDING}", pattern if given else CLASS_DEFAULT)
    elif given:
        expect_same("layer_types", kinds, rule, f.said(pattern))
    return windows_of(f, kinds or rule, f.optional("sliding_window"))


def layer_types(f: Fields) -> tuple[str, ...] | None:
    """The kind of each layer as the config lists them, or None where it does not."""
    return per_layer(f, "layer_types", (FULL, SLIDING))


def windows_of(f: Fields, kinds: tuple[str, ...], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer by its kind; a sliding layer without a window is refused."""
    if window is None and SLIDING in kinds:
        where = f"layer_types[{kinds.index(SLIDING)}]"
        raise InputError(f"`{where}` is `{SLIDING}` and {f.said('sliding_window')}, expected a window")
    if SLIDING not in kinds:
        f.set_aside("sliding_window", note="no layer slides")
    return tuple(window if kind == SLIDING else None for kind in kinds)


# Lists with an entry for each layer


def per_layer(f: Fields, name: str, known: Sequence[str]) -> tuple[str, ...] | None:
    """One of the `known` words for each layer, or None where the config does not list them."""
    words = f.words(name, known)
    if words is not None:
        expect_each(f, name, words)
    return words


def expect_each(f: Fields, name: str, listed: Sequence[object]) -> None:
    if len(listed) != depth(f):
        both = f"`{name}` has {len(listed):,} entries and {f.said('num_hidden_layers')}"
        raise InputError(f"{both}, expected one for each layer")


def expect_same(name: str, listed: Sequence[str], rule: Sequence[str], said: str) -> None:
    """Nothing where the list `name` is the one that another field, which says `said`, leads to."""
    for index, (found, expected) in enumerate(zip(listed, rule, strict=True)):
        if found != expected:
            both = f"`{name}[{index}]` is `{found}` and {said}"
            raise InputError(f"{both}, expected that they agree, or one of them only")


def expect_kind(f: Fields, kind: str, because: str) -> None:
    for index, found in enumerate(layer_types(f) or ()):
        if found != kind:
            raise InputError(f"`layer_types[{index}]` is `{found}`, expected `{kind}`: {because}", hint=HINT)


def refuse_two_ways(f: Fields) -> None:
    f.agrees("use_bidirectional_attention", False, "tokens that see later ones have no cache")


def refuse_groups(f: Fields, kv: str) -> NoReturn:
    """`kv` is what the field of the KV heads says."""
    raise InputError(
        f"{f.said('num_attention_heads')} and {kv}, expected a whole number of query heads for each KV head"
    )


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
