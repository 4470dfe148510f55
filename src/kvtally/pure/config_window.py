"""Decoders whose layers slide, all of them or in turn with layers that see everything, and a dense MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.pure.config_dense import (
    FULL,
    SLIDING,
    alternating,
    attention,
    decoder,
    depth,
    layer_types,
    llama,
    mha,
    mlps,
    refuse_two_ways,
    sliding_everywhere,
    sliding_late,
    stack,
    windows_of,
)
from kvtally.pure.config_fields import CLASS_DEFAULT, Fields

Windows = Callable[[Fields], tuple[int | None, ...]]


def in_turn(slides: Callable[[int], bool], rule: str, *, full_last: bool = False) -> Windows:
    """A reader of windows: as `layer_types` lists them, else layer i slides where `slides(i)`.

    `full_last`: but the last layer sees everything.
    """

    def windows(f: Fields) -> tuple[int | None, ...]:
        layers, kinds = depth(f), layer_types(f)
        if kinds is None:
            f.derive("layer_types", rule, CLASS_DEFAULT)
            sliding = [slides(index) and not (full_last and index == layers - 1) for index in range(layers)]
            kinds = tuple(SLIDING if own else FULL for own in sliding)
        window = f.optional("sliding_window") if SLIDING in kinds or f.knows("sliding_window") else None
        return windows_of(f, kinds, window)

    return windows


def by_pattern(name: str, default: int | None = None) -> Windows:
    """A reader of windows: every n-th layer sees everything, n being the field `name`, else `default`."""

    def windows(f: Fields) -> tuple[int | None, ...]:
        if layer_types(f) is not None:
            f.set_aside(name, note="layer_types says which layers slide")
            return never_by_default(f)
        every = f.integer(name, default=default)
        return in_turn(lambda i: bool((i + 1) % every), f"{FULL} every {every}, else {SLIDING}")(f)

    return windows


def never_by_default(f: Fields) -> tuple[int | None, ...]:
    """Windows as `layer_types` lists them; without it nothing slides."""
    return in_turn(lambda _: False, f"{FULL} everywhere")(f)


def first_of_four(f: Fields) -> tuple[int | None, ...]:
    """Layers 0, 4, 8 … see everything, unless `layer_types` says otherwise."""
    return in_turn(lambda i: bool(i % 4), f"{FULL} at 0, 4, 8 …, else {SLIDING}")(f)


every_fourth: Windows = in_turn(lambda i: bool((i + 1) % 4), f"{FULL} every 4, else {SLIDING}")


def ministral(f: Fields) -> tuple[int | None, ...]:
    """Everything slides, nothing where `sliding_window` is null, unless `layer_types` says otherwise."""
    slides = f.optional("sliding_window") is not None
    return in_turn(lambda _: slides, f"{SLIDING if slides else FULL} everywhere")(f)


def exaone(f: Fields) -> tuple[int | None, ...]:
    """EXAONE 4: as `sliding_window_pattern` says, a number or letters; nothing slides where the window is null."""
    kinds, window = layer_types(f), f.optional("sliding_window")
    if kinds is not None or window is None:
        f.set_aside("sliding_window_pattern", note="layer_types or a null sliding_window says which layers slide")
        return windows_of(f, kinds or (FULL,) * depth(f), window)
    return by_pattern("sliding_window_pattern")(f)


def smollm3(f: Fields) -> tuple[int | None, ...]:
    """SmolLM3: layers without rotary positions slide, once `use_sliding_window` is true."""
    layers, kinds = depth(f), layer_types(f)
    every = f.integer("no_rope_layer_interval")
    given = f.integers("no_rope_layers", least=0, most=1)
    if given is not None and len(given) != layers:
        raise InputError(f"`no_rope_layers` has {len(given):,} entries, expected one for each of {layers:,} layers")
    rotary = given or tuple(int((index + 1) % every != 0) for index in range(layers))
    if not f.flag("use_sliding_window") and kinds is None:
        f.set_aside("sliding_window", "max_window_layers", note="use_sliding_window is false")
        f.set_aside("no_rope_layer_interval", note="which layers rotate, and no layer slides")
        return (None,) * layers
    return in_turn(lambda i: not rotary[i], f"{SLIDING} without rotary positions, else {FULL}")(f)


def local_attention(f: Fields) -> tuple[int | None, ...]:
    """ModernBERT decoder: layers that are not every third from 0 slide by half of `local_attention`."""
    layers, kinds = depth(f), layer_types(f)
    every = f.integer("global_attn_every_n_layers", default=3)
    if kinds is None:
        rule = f.derive("layer_types", f"{FULL} at 0, {every} …, else {SLIDING}", "global_attn_every_n_layers")
        kinds = tuple(SLIDING if index % every else FULL for index in range(layers)) if rule else ()
    half = f.integer("local_attention", least=2) // 2
    f.agrees("sliding_window", half, "local_attention / 2")
    f.derive("sliding_window", half, "local_attention / 2")
    return windows_of(f, kinds, half)


# Decoders


def dense(windows: Windows, *, gated: bool = True) -> Callable[[Fields], Decoder]:
    """A reader of decoders with these windows, attention of one size and a dense MLP."""
    return lambda f: stack(f, windows(f), mlps(f, gated=gated))


def gemma2(f: Fields) -> Decoder:
    """Gemma 2 and VaultGemma: every second layer sees everything, the others slide."""
    refuse_two_ways(f)
    return stack(f, alternating(f, every=2), mlps(f))


def gemma3_text(f: Fields) -> Decoder:
    """Gemma 3: every sixth layer sees everything, the others slide, unless a pattern says otherwise."""
    refuse_two_ways(f)
    every = f.integer("sliding_window_pattern") if f.has("sliding_window_pattern") else 6
    return stack(f, alternating(f, every=every), mlps(f))


def gemma3(f: Fields) -> Decoder:
    """Gemma 3 with a vision tower: its `text_config`."""
    return gemma3_text(f.nested("text_config", "gemma3_text"))


def cohere2(f: Fields) -> Decoder:
    """Command R7B: every fourth layer sees everything."""
    f.set_aside("order_of_interleaved_layers", note="layer_types or sliding_window_pattern says which layers slide")
    return stack(f, by_pattern("sliding_window_pattern", 4)(f), mlps(f))


def modernbert(f: Fields) -> Decoder:
    """ModernBERT decoder: MHA, gated MLP, a dense matrix before the output head."""
    windows, hidden = local_attention(f), f.integer("hidden_size")
    made = stack(f, windows, mlps(f), mixer=mha(f))
    return decoder(f, made.layers, head=((hidden, hidden),))


def doge(f: Fields) -> Decoder:
    """Doge: a small matrix on the values makes a mask that keeps `keep_window_size` keys of each query.

    Every pair is scored; the mask comes after that.
    """
    if f.flag("is_moe"):
        raise InputError(f"{f.said('is_moe')}, expected false: experts of single units have no formula here")
    f.set_aside("num_experts", "num_experts_per_tok", note="is_moe is false")
    f.set_aside("keep_window_size", note="a mask that depends on the values: every pair is scored")
    mixer = attention(f)
    return stack(f, sliding_everywhere(f), mlps(f), mixer=replace(mixer, value_mask=True))


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dict.fromkeys(("mistral", "ministral3", "phi3", "phi4_multimodal"), dense(sliding_everywhere)),
    "starcoder2": dense(sliding_everywhere, gated=False),
    "ministral": dense(ministral),
    **dict.fromkeys(("qwen2", "qwen3"), dense(sliding_late)),
    **dict.fromkeys(("gemma2", "vaultgemma"), gemma2),
    "gemma3": gemma3,
    "gemma3_text": gemma3_text,
    "cohere2": cohere2,
    "cohere_compass_text": dense(never_by_default),
    "cwm": dense(first_of_four),
    "granite_swa": dense(first_of_four),
    "exaone4": dense(exaone),
    "olmo3": dense(every_fourth),
    "smollm3": dense(smollm3),
    "modernbert-decoder": modernbert,
    "doge": doge,
    **dict.fromkeys(("qwen3_vl_text", "emu3_text_model"), llama),
}
