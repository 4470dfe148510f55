"""Decoders of the GPT years: a KV head for each head or one for all, MLP without a gate, names of their own."""

from __future__ import annotations

from collections.abc import Callable

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError, require_int
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Mlp
from kvtally.pure.config_dense import (
    decoder,
    depth,
    full,
    kv_heads,
    mha,
    mlps,
    refuse_groups,
    repeat,
    stack,
    whole_head_dim,
)
from kvtally.pure.config_fields import HINT, Fields, shown


def gpt2(f: Fields) -> Decoder:
    """GPT-2: MHA, MLP of four times the hidden size where `n_inner` is null."""
    return stack(f, full(f), repeat(f, Mlp(width=inner(f, "n_inner"), gated=False)), mixer=mha(f))


def gpt_bigcode(f: Fields) -> Decoder:
    """GPTBigCode, StarCoder: GPT-2 with one KV head where `multi_query` says so."""
    kv = 1 if f.flag("multi_query") else f.integer("num_attention_heads")
    f.agrees("num_key_value_heads", kv, f.said("multi_query"))
    return _narrow(f, kv, inner(f, "n_inner"))


def four_times(f: Fields) -> Decoder:
    """BLOOM and the first GPT: MHA, MLP always four times the hidden size."""
    width = f.derive("intermediate_size", 4 * f.integer("hidden_size"), "4 * hidden_size")
    return stack(f, full(f), repeat(f, Mlp(width=width, gated=False)), mixer=mha(f))


def gpt_neox(f: Fields) -> Decoder:
    """GPT-NeoX, Pythia, BioGPT, Persimmon: MHA, MLP without a gate."""
    return stack(f, full(f), mlps(f, gated=False), mixer=mha(f))


def gpt_neox_japanese(f: Fields) -> Decoder:
    """GPT-NeoX Japanese: MLP of `intermediate_multiple_size` times the hidden size."""
    width = int(f.number("intermediate_multiple_size") * f.integer("hidden_size"))
    f.derive("intermediate_size", width, "intermediate_multiple_size * hidden_size")
    return stack(f, full(f), repeat(f, Mlp(width=width, gated=False)), mixer=mha(f))


def gpt_neo(f: Fields) -> Decoder:
    """GPT-Neo: layers of `attention_types` are `global` or `local`, which see `window_size` tokens.

    Its class keeps and multiplies the whole past of local layers too, so they are read as layers that
    choose the newest `window_size` keys of all that are held.
    """
    heads, window = f.integer("num_attention_heads"), f.integer("window_size")
    kinds = _neo_kinds(f)
    mlp, width = Mlp(width=inner(f, "intermediate_size"), gated=False), whole_head_dim(f)
    near = Attention(num_heads=heads, num_kv_heads=heads, head_dim=width, top_k=window)
    far = Attention(num_heads=heads, num_kv_heads=heads, head_dim=width)
    return decoder(f, tuple(Layer(mixer=near if kind == "local" else far, mlp=mlp) for kind in kinds))


def named(width: str) -> Callable[[Fields], Decoder]:
    """CTRL, OPT, XGLM: MHA, MLP as wide as the field `width` says."""

    def rule(f: Fields) -> Decoder:
        return stack(f, full(f), repeat(f, Mlp(width=f.integer(width), gated=False)), mixer=mha(f))

    return rule


def opt(f: Fields) -> Decoder:
    """OPT: embeddings of `word_embed_proj_dim`, projected to the hidden size and back where that is another."""
    hidden = f.integer("hidden_size")
    narrow = f.optional("word_embed_proj_dim") or hidden
    made = named("ffn_dim")(f)
    if narrow == hidden:
        return made
    return decoder(f, made.layers, outside=((narrow, hidden),), head=((hidden, narrow),))


def mpt(f: Fields) -> Decoder:
    """MPT: MHA, or `attn_config.kv_n_heads` KV heads; MLP of `expansion_ratio` times the hidden size."""
    own = f.part("attn_config")
    heads = f.integer("num_attention_heads")
    kv = kv_heads(f, own, "kv_n_heads") if own.has("kv_n_heads") else heads
    if own.has("attn_type") and own.word("attn_type") == "multiquery_attention":
        kv = 1
    own.agrees("prefix_lm", False, "tokens that see later ones have no cache")
    if own.has("sliding_window_size"):
        own.agrees("sliding_window_size", -1, "a window is not read for `mpt`")
    own.set_aside("attn_type", "alibi", "alibi_bias_max", note="does not change K and V")
    width = int(f.number("expansion_ratio") * f.integer("hidden_size"))
    return _narrow(f, kv, f.derive("intermediate_size", width, "expansion_ratio * d_model"))


def cpmant(f: Fields) -> Decoder:
    """CPM-Ant: MHA of `dim_head`, gated MLP; its `prompt_length` learned tokens count as part of the prompt."""
    heads = f.integer("num_attention_heads")
    mixer = Attention(num_heads=heads, num_kv_heads=heads, head_dim=f.integer("dim_head"))
    f.set_aside("prompt_length", "prompt_types", note="tokens put before the prompt: ask for so many more")
    return stack(f, full(f), repeat(f, Mlp(width=f.integer("dim_ff"))), mixer=mixer)


def falcon(f: Fields) -> Decoder:
    """Falcon: `num_kv_heads` in the new architecture, one KV head with `multi_query`, else MHA.

    In the new architecture transformers stores each KV head once for every query head of its group;
    that is not counted.
    """
    heads = f.integer("num_attention_heads")
    given = f.optional("num_kv_heads")
    if f.flag("new_decoder_architecture"):
        f.set_aside("multi_query", note="new_decoder_architecture is true")
        return _narrow(f, heads if given is None else given, inner(f, "ffn_hidden_size"))
    kv = 1 if f.flag("multi_query") else heads
    if given not in (None, kv, heads):
        raise InputError(f"{f.said('multi_query')} and {f.said('num_kv_heads')}, expected {kv} KV heads, or null")
    return _narrow(f, f.derive("num_kv_heads", kv, "multi_query"), inner(f, "ffn_hidden_size"))


def refined_web(f: Fields) -> Decoder:
    """Falcon 40B under its first name: always grouped, `n_head_kv` groups."""
    return _narrow(f, f.integer("num_kv_heads"), inner(f, "ffn_hidden_size"))


def refined_web_model(f: Fields) -> Decoder:
    """Falcon 7B under its first name: one KV head with `multi_query`, else MHA."""
    kv = 1 if f.flag("multi_query") else f.integer("num_attention_heads")
    return _narrow(f, kv, inner(f, "ffn_hidden_size"))


def inner(f: Fields, name: str) -> int:
    """The width of the MLP that the field `name` gives; four times the hidden size where it is null."""
    return f.optional(name) or f.derive(name, 4 * f.integer("hidden_size"), "4 * hidden_size")


def _narrow(f: Fields, kv: int, width: int) -> Decoder:
    heads = f.integer("num_attention_heads")
    if heads % kv:
        refuse_groups(f, f.said("num_kv_heads"))
    mixer = Attention(num_heads=heads, num_kv_heads=kv, head_dim=whole_head_dim(f))
    return stack(f, full(f), repeat(f, Mlp(width=width, gated=False)), mixer=mixer)


def _neo_kinds(f: Fields) -> tuple[str, ...]:
    """The kind of each layer: `attention_types` is a list of (kinds, how often they come in turn)."""
    layers = depth(f)
    kinds: list[object] = []
    given = f.items("attention_types")
    for index, group in enumerate([[["global", "local"], 12]] if given is None else given):
        if not isinstance(group, list | tuple) or len(group) != 2 or not isinstance(group[0], list | tuple):
            raise InputError(f"`attention_types[{index}]` is {shown(group)}, expected [kinds, how often]", hint=HINT)
        kinds += [*group[0]] * require_int(f"attention_types[{index}][1]", group[1], least=1, most=layers)
    for index, kind in enumerate(kinds):
        if kind not in ("global", "local"):
            raise InputError(
                f"`attention_types` names {shown(kind)} for layer {index}; known: `global`, `local`", hint=HINT
            )
    if len(kinds) != layers:
        both = f"`attention_types` covers {len(kinds):,} layers and {f.said('num_hidden_layers')}"
        raise InputError(f"{both}, expected one kind for each layer")
    f.agrees("attention_layers", kinds, "attention_types says which layers are local")
    return tuple(str(kind) for kind in kinds)


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "gpt2": gpt2,
    "gpt-sw3": gpt2,
    "gptj": gpt2,
    "codegen": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "bloom": four_times,
    "openai-gpt": four_times,
    "gpt_neox": gpt_neox,
    "biogpt": gpt_neox,
    "persimmon": gpt_neox,
    "gpt_neox_japanese": gpt_neox_japanese,
    "gpt_neo": gpt_neo,
    "ctrl": named("dff"),
    "xglm": named("ffn_dim"),
    "opt": opt,
    "mpt": mpt,
    "cpmant": cpmant,
    "falcon": falcon,
    "RefinedWeb": refined_web,
    "RefinedWebModel": refined_web_model,
}
