"""Decoders that run some of their layers several times, each time with K and V of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.config_dense import FULL, SLIDING, attention, decoder, depth, mlps, per_layer
from kvtally.pure.config_fields import CLASS_DEFAULT, HINT, MOST_LAYERS, Fields
from kvtally.pure.config_recurrent import HYBRID, chosen_experts, further, ruled_kinds
from kvtally.pure.config_short_conv import HYBRID_SLIDING, HYBRIDS, Sizes, inkling_attention, inkling_beside


def dory(f: Fields) -> Decoder:
    """Dory: the layers between input and output layers run `n_recurrent_loops` times; a gate on the output.

    The layers are given in the order they run. Files list every MLP as a layer of its own.
    """
    listed, halves = _dory_kinds(f)
    first, last = (f.integer(name, least=0) // halves for name in ("n_input_layers", "n_output_layers"))
    middle = len(listed) - first - last
    given = f.optional("n_recurrent_layers", least=0)
    if middle < 0 or given not in (None, middle * halves):
        raise InputError(f"{f.said('n_recurrent_layers')} between {first} and {last} of {len(listed)} layers")
    loops = f.integer("n_recurrent_loops", most=MOST_LAYERS)
    mode = f.word("recurrent_kv_cache_mode")
    if mode != "per_loop":
        raise InputError(f"{f.said('recurrent_kv_cache_mode')}; known: `per_loop`", hint=HINT)
    gate = f.integer("num_attention_heads") * f.integer("head_dim")
    mlp = mlps(f)[0]
    parts = {
        FULL: Layer(mixer=attention(f), beside=further((None, gate)), mlp=mlp),
        SLIDING: Layer(mixer=attention(f, window=f.integer("sliding_window")), beside=further((None, gate)), mlp=mlp),
    }
    once = tuple(parts[kind] for kind in listed)
    _refuse_deep(first + loops * middle + last)
    return decoder(f, once[:first] + once[first : first + middle] * loops + once[first + middle :])


def _dory_kinds(f: Fields) -> tuple[tuple[str, ...], int]:
    """The kind of each layer, and how many entries of the config make one."""
    words = per_layer(f, "layer_types", (FULL, SLIDING, "mlp"))
    if words is None:
        rule = tuple(SLIDING if (index + 1) % 4 else FULL for index in range(depth(f)))
        f.derive("layer_types", f"{FULL} every 4, else {SLIDING}", CLASS_DEFAULT)
        return rule, 1
    if "mlp" not in words:
        return words, 1
    if set(words[1::2]) != {"mlp"} or "mlp" in words[::2] or len(words) % 2:
        raise InputError("`layer_types` has `mlp` among its layers, expected one behind each attention", hint=HINT)
    return words[::2], 2


def hrm_text(f: Fields) -> Decoder:
    """HRM: a low and a high stack, `L_cycles` times the low one and once the high one, `H_cycles` times over."""
    given = f.optional("num_layers_per_stack")
    high, low = f.integer("H_cycles", most=MOST_LAYERS), f.integer("L_cycles", most=MOST_LAYERS)
    stack = given or depth(f)
    runs = stack * high * (low + 1)
    if given is not None and depth(f) != runs:
        both = f"{f.said('num_layers_per_stack')} and {f.said('num_hidden_layers')}"
        raise InputError(f"{both}, expected {runs} in all: stack * H_cycles * (L_cycles + 1)")
    _refuse_deep(runs)
    heads, head_dim = f.integer("num_attention_heads"), f.integer("head_dim")
    f.agrees("num_key_value_heads", heads, f"`{f.model_type}` has one KV head for each head")
    mixer = Attention(num_heads=heads, num_kv_heads=heads, head_dim=head_dim)
    layer = Layer(mixer=mixer, beside=further((None, heads * head_dim)), mlp=mlps(f)[0])
    return decoder(f, (layer,) * runs)


def inkling2_text(f: Fields) -> Decoder:
    """Inkling 2: convolutions as in Inkling, residuals that attend to the blocks of layers before."""
    layers = range(depth(f))
    return _inkling2(f, tuple((index, False) for index in layers))


def inkling2_loop_text(f: Fields) -> Decoder:
    """Inkling 2 with a loop: layers from start to end run several times, with messages from the pass before.

    The layers are given in the order they run.
    """
    part = f.part("loop_config")
    start, end, passes, rank = (
        part.integer(own) if part.has(own) else f.integer(common)
        for own, common in (
            ("core_start", "loop_layer_index_start"),
            ("core_end", "loop_layer_index_end"),
            ("num_passes", "loop_num_passes"),
            ("gate_rank", "loop_gate_rank"),
        )
    )
    block = f.integer("n_layers_per_attn_res_block")
    if not 0 < start < end <= depth(f) or start % block or end % block:
        raise InputError(f"a loop over layers {start} to {end} of {depth(f)}, expected whole blocks of {block} layers")
    _refuse_deep(depth(f) + (passes - 1) * (end - start))
    again = tuple((index, True) for index in range(start, end)) * (passes - 1)
    order = (*((i, False) for i in range(end)), *again, *((i, False) for i in range(end, depth(f))))
    hidden, blocks = f.integer("hidden_size"), (end - start) // block
    messages = ((hidden, 4 * blocks), (4 * blocks, hidden)) * len(again)
    return _inkling2(f, tuple(order), rank=rank, outside=messages)


def _inkling2(
    f: Fields, order: tuple[tuple[int, bool], ...], *, rank: int = 0, outside: tuple[tuple[int, int], ...] = ()
) -> Decoder:
    """The layers in the order they run: for each its index, and whether it gets messages."""
    rule = tuple(HYBRID_SLIDING if (index + 1) % 6 else HYBRID for index in range(depth(f)))
    listed = ruled_kinds(f, HYBRIDS, rule, CLASS_DEFAULT)
    hidden, block = f.integer("hidden_size"), f.integer("n_layers_per_attn_res_block")
    mlp = chosen_experts(f, "n_routed_experts", "intermediate_size")
    f.set_aside("mlp_gate_softcap", "mlp_up_softcap", "number_of_conv_states", note="no product")
    parts = {kind: _inkling2_part(f, kind) for kind in HYBRIDS}
    layers = []
    for index, messages in order:
        mixer, *convolutions = parts[listed[index]]
        before = -(-index // block)
        inner = before + 1 + (index % block == 0)
        queries = (1 if listed[index] == HYBRID_SLIDING else 3) * (before + 1) if index else 0
        looks = [size for wide in (queries, inner) if wide for size in ((None, wide), (wide, None))]
        gates = [(2 * hidden, rank), (rank, None), (rank, None)] * 4 if messages else []
        layers.append(Layer(mixer=mixer, beside=(*convolutions, *further(*looks, *gates)), mlp=mlp))
    blocks = -(-depth(f) // block) + 1
    sized = decoder(f, tuple(layers))
    vocab = f.integer("unpadded_vocab_size")
    f.set_aside("vocab_size", note="logits are made for the vocabulary without its padding")
    return replace(sized, vocab_size=vocab, outside=(*outside, (hidden, blocks), (blocks, hidden)))


def _inkling2_part(f: Fields, kind: str) -> tuple[Attention, *tuple[Recurrent, ...]]:
    """Attention of one kind of layer with its gate, biases and convolutions; a full layer makes taps for each token."""
    mixer, extent = inkling_attention(f, kind)
    hidden, taps = f.integer("hidden_size"), f.integer("conv_kernel_size")
    heads, kv = mixer.num_heads, mixer.num_kv_heads * mixer.head_dim
    bias = heads * f.integer("d_rel")
    matrices: list[Sizes] = [(None, bias), (bias, extent), (None, heads * mixer.head_dim), (None, heads)]
    if kind == HYBRID_SLIDING:
        return mixer, inkling_beside(taps, 2 * hidden + 2 * kv, *matrices)
    making = [(None, mixer.num_kv_heads * taps)] * 2
    dynamic = replace(inkling_beside(taps, 2 * kv, *making), conv_dynamic=True)
    return mixer, inkling_beside(taps, 2 * hidden, *matrices), dynamic


def _refuse_deep(layers: int) -> None:
    if layers > MOST_LAYERS:
        raise InputError(f"{layers:,} layers run in one pass, expected at most {MOST_LAYERS:,}")


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "dory": dory,
    "hrm_text": hrm_text,
    "inkling2_loop_text": inkling2_loop_text,
    "inkling2_text": inkling2_text,
}
