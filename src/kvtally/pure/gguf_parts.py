"""The parts that GGUF architectures share: depth, windows, attention, MLPs, experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.pure.config_fields import HINT
from kvtally.pure.gguf_keys import MOST_LAYERS, Keys

Windows = Callable[[Keys], tuple[int | None, ...]]
WINDOW, PATTERN, WIDTH = "attention.sliding_window", "attention.sliding_window_pattern", "feed_forward_length"
KV_HEADS, ROUTER = "attention.head_count_kv", "ffn_gate_inp"

# Architectures whose `block_count` has their draft layers in it.
WITH_DRAFT = {"mimo2", "glm4moe", "exaone4", "qwen3next", "qwen35", "qwen35moe", "deepseek2", "glm4"}


def depth(k: Keys) -> int:
    """How many layers there are, without draft (multi-token prediction) layers."""
    blocks = k.integer("block_count", least=1, most=MOST_LAYERS)
    if k.arch not in WITH_DRAFT:
        return blocks
    draft = k.integer("nextn_predict_layers", most=blocks - 1, default=0)
    if not draft:
        return blocks
    return int(k.derive("layers", blocks - draft, "block_count - nextn_predict_layers"))


def having(k: Keys, tensor: str, says: str) -> tuple[bool, ...]:
    """Whether each layer has the tensor `blk.N.{tensor}.weight`; where only that says what is asked.

    Refused in a file that does not name all tensors: one without any, or one of several.
    """
    if not k.tensors or k.parts > 1:
        held = "one of several files" if k.parts > 1 else "without tensors"
        raise InputError(
            f"the file is {held}, expected the names of all tensors: for `{k.arch}` only they say {says}",
            hint="give a whole .gguf file, or the config.json of the model",
        )
    found = tuple(f"blk.{index}.{tensor}.weight" in k.tensors for index in range(depth(k)))
    k.derive(f"layers with {tensor}", sum(found), "names of tensors")
    return found


# Windows, one a layer; None sees everything


def nowhere(k: Keys) -> tuple[None, ...]:
    """No layer slides: llama.cpp reads no window here, whatever the file says."""
    k.set_aside(WINDOW, PATTERN, note=f"llama.cpp slides in no layer of arch {k.arch}, and caches everything")
    return (None,) * depth(k)


def in_turn(
    every: int, *, default: int | None = None, optional: bool = False, fixed: int | None = None, first: bool = False
) -> Windows:
    """Windows where every n-th layer sees everything: n as the file says, else `every`, built into llama.cpp.

    `default` is the window where the file has none; `optional`: without one nothing slides; `fixed` is
    the window whatever the file says. `first`: the first of every n layers sees everything, not the last.
    """

    def windows(k: Keys) -> tuple[int | None, ...]:
        layers = depth(k)
        if optional and not (k.has(WINDOW) and k.integer(WINDOW)):
            k.set_aside(PATTERN, note="no window is given")
            return (None,) * layers
        window = k.integer(WINDOW, least=1, default=default)
        if fixed is not None:
            window = k.derive(WINDOW, fixed, k.built_in)
        return tuple(window if slides else None for slides in _slides(k, layers, every, first))

    return windows


def _slides(k: Keys, layers: int, every: int, first: bool) -> Sequence[bool]:
    found = k.marks(PATTERN, layers) if k.has(PATTERN) else int(k.derive(PATTERN, every, k.built_in))
    if isinstance(found, tuple):
        return found
    if found == 0:
        return (True,) * layers
    return tuple(i % found != (0 if first else found - 1) for i in range(layers))


def as_listed(k: Keys) -> tuple[int | None, ...]:
    """Windows in the layers that the file marks; llama.cpp has no turn of its own here, and refuses a file without."""
    if not k.has(PATTERN):
        raise InputError(f"`{k.arch}.{PATTERN}` is missing, expected a boolean for each layer")
    return in_turn(1)(k)


def exaone4(k: Keys) -> tuple[int | None, ...]:
    """EXAONE 4: llama.cpp slides in the model of 64 layers only."""
    if depth(k) == 64:
        return in_turn(4, default=4096)(k)
    k.set_aside(WINDOW, PATTERN, note="llama.cpp slides in the model of 64 layers only")
    return (None,) * depth(k)


# Mixers


def attentions(
    k: Keys, windows: Sequence[int | None], *, gated: bool = False, chunked: bool = False
) -> tuple[Attention | None, ...]:
    """The attention of each layer; None where `head_count_kv` is 0. `chunked`: a window is a chunk."""
    layers = len(windows)
    heads = k.by_layer("attention.head_count", layers)
    kv_heads = heads
    if k.has(KV_HEADS):
        kv_heads = k.by_layer(KV_HEADS, layers)
    else:
        k.derive(KV_HEADS, "as head_count", "attention.head_count")
    widths = {slides: head_widths(k, max(heads), slides=slides) for slides in {w is not None for w in windows}}
    made: list[Attention | None] = []
    for index, (many, kv, window) in enumerate(zip(heads, kv_heads, windows, strict=True)):
        if many and kv and many % kv:
            raise InputError(
                f"`{k.arch}.attention.head_count` is {many:,} and `{k.arch}.{KV_HEADS}` {kv:,} in layer {index}, "
                "expected a whole number of query heads for each KV head"
            )
        if not (many and kv):
            made.append(None)
            continue
        key, value = widths[window is not None]
        mixer = Attention(
            num_heads=many,
            num_kv_heads=kv,
            head_dim=key,
            v_head_dim=None if value == key else value,
            window=None if chunked else window,
            chunk=window if chunked else None,
            gated=gated,
        )
        made.append(mixer)
    return tuple(made)


def head_widths(k: Keys, heads: int, *, slides: bool = False) -> tuple[int, int]:
    """Elements of a key and of a value of one head: as given, else embedding_length / head_count."""

    def width(name: str) -> int:
        if slides and k.has(f"{name}_swa"):
            return k.integer(f"{name}_swa", least=1)
        if k.has(name):
            return k.integer(name, least=1)
        hidden = k.integer("embedding_length", least=1)
        if not heads or hidden % heads:
            raise InputError(
                f"`{k.arch}.embedding_length` is {hidden:,} and `{k.arch}.attention.head_count` is {heads:,}, "
                f"expected a whole width for each head, or `{k.arch}.{name}`"
            )
        return int(k.derive(name, hidden // heads, "embedding_length / attention.head_count"))

    return width("attention.key_length"), width("attention.value_length")


def everywhere(k: Keys, mixers: Sequence[Attention | None]) -> tuple[Attention, ...]:
    """The same mixers, refused where a layer has none."""
    for index, mixer in enumerate(mixers):
        if mixer is None:
            raise InputError(
                f"`{k.arch}.{KV_HEADS}` or `head_count` is 0 in layer {index}, expected at least 1", hint=HINT
            )
    return tuple(mixer for mixer in mixers if mixer)


# MLPs


def experts(k: Keys, *, gated: bool = True, gate: int = 0, split: bool = False, shared: str = "") -> Experts:
    """Experts behind a router.

    `gate`: units of a gate on the shared part. `split`: where the file gives no width of an expert it is
    feed_forward_length / expert_used_count. `shared` is the key, or `expert` for the width of an expert,
    that llama.cpp takes for the width of the shared part where the file does not give one.
    """
    many = k.integer("expert_count", least=1)
    chosen = k.integer("expert_used_count", least=1, most=many)
    width = _expert_width(k, chosen if split else 1)
    always = _shared_width(k, width, shared)
    return Experts(
        num_experts=many, per_token=chosen, width=width, gated=gated, shared=always, shared_gate=gate if always else 0
    )


def _expert_width(k: Keys, parts: int) -> int:
    name = "expert_feed_forward_length"
    if k.has(name):
        return k.integer(name, least=1)
    source = WIDTH if parts == 1 else f"{WIDTH} / expert_used_count"
    return int(k.derive(name, k.integer(WIDTH, least=parts) // parts, source))


def _shared_width(k: Keys, expert: int, fallback: str) -> int:
    length, count = "expert_shared_feed_forward_length", "expert_shared_count"
    if k.has(length):
        k.set_aside(count, note=f"{length} gives the width of all of them")
        return k.integer(length)
    if k.has(count):
        return expert * k.integer(count)
    if not fallback:
        return 0
    return int(k.derive(length, expert if fallback == "expert" else k.integer(fallback), k.built_in))


def mlps(k: Keys, *, gated: bool = True, **said: int | bool | str) -> tuple[Mlp | Experts, ...]:
    """The MLP of each layer: dense ones first, then experts at a step, as the keys say; `said` is for `experts`."""
    layers = depth(k)
    if not k.integer("expert_count", default=0):
        return tuple(Mlp(width=width, gated=gated) for width in k.by_layer(WIDTH, layers, least=1))
    dense = k.integer("leading_dense_block_count", default=0)
    step = k.integer("interleave_moe_layer_step", default=1) or layers + 1
    return by_kind(k, [i >= dense and (i + 1) % step == 0 for i in range(layers)], gated=gated, **said)


def by_kind(
    k: Keys, sparse: Sequence[bool], *, gated: bool = True, **said: int | bool | str
) -> tuple[Mlp | Experts, ...]:
    """Experts where `sparse`, a dense MLP elsewhere."""
    chosen = experts(k, gated=gated, **said) if any(sparse) else None  # type: ignore[arg-type]
    if chosen and all(sparse):
        k.set_aside(WIDTH, note="no layer has a dense MLP") if WIDTH not in k.facts else None
        return (chosen,) * len(sparse)
    widths = k.by_layer(WIDTH, len(sparse), least=1)
    return tuple(chosen if chosen and s else Mlp(width=w, gated=gated) for s, w in zip(sparse, widths, strict=True))


def stack(
    k: Keys,
    mixers: Sequence[Mixer | None],
    of_mlp: Sequence[Mlp | Experts | None],
    *,
    beside: Sequence[tuple[Mixer, ...]] | None = None,
) -> Decoder:
    """The decoder of these mixers and MLPs, and what runs beside them."""
    rows = zip(mixers, of_mlp, beside or ((),) * len(mixers), strict=True)
    layers = tuple(Layer(mixer=mixer, mlp=mlp, beside=more) for mixer, mlp, more in rows)
    return decoder(k, layers)


def decoder(k: Keys, layers: tuple[Layer, ...], *, outside: tuple[tuple[int, int], ...] = ()) -> Decoder:
    """The decoder of these layers, with its sizes outside them."""
    hidden = k.integer("embedding_length", least=1)
    return Decoder(hidden_size=hidden, vocab_size=k.vocab_size(), layers=layers, outside=outside)
