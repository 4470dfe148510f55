"""Decoders whose state is updated element by element or by gates: RecurrentGemma, RWKV, xLSTM."""

from __future__ import annotations

from collections.abc import Callable

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mlp import Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import SLIDING, attention, decoder, depth
from kvtally.pure.config_fields import CLASS_DEFAULT, Fields
from kvtally.pure.config_recurrent import LINEAR, SCAN, further

KINDS = {"recurrent": LINEAR, "attention": SLIDING}  # as its class calls the blocks


def recurrent_gemma(f: Fields) -> Decoder:
    """RecurrentGemma: RG-LRU layers (arXiv:2402.19427) and sliding attention by a repeated pattern."""
    pattern = f.words("block_types", ("recurrent", "attention"))
    if pattern is None:
        pattern = ("recurrent", "recurrent", "attention")
        f.derive("block_types", ", ".join(pattern), CLASS_DEFAULT)
    if not pattern:
        raise InputError("`block_types` is empty, expected a pattern of layers")
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    width = f.optional("lru_width") or f.derive("lru_width", hidden, "hidden_size")
    if width % heads:
        raise InputError(f"{f.said('lru_width')} and {f.said('num_attention_heads')}, expected whole blocks")
    gates = ((Term.extra_proj, width, width // heads),) * 2
    unit = Recurrent(
        matrices=((Term.in_proj, None, width), (Term.in_proj, None, width), *gates, (Term.out_proj, width, None)),
        conv_channels=width,
        conv_kernel=f.integer("conv1d_width"),
        scanned=width,
    )
    half = Mlp(width=_half(f, "intermediate_size"))
    parts = {
        "recurrent": Layer(mixer=unit, mlp=half),
        "attention": Layer(mixer=attention(f, window=f.integer("attention_window_size")), mlp=half),
    }
    listed = [pattern[index % len(pattern)] for index in range(depth(f))]
    for name in ("layer_types", "layers_block_type"):
        f.agrees(name, [KINDS[kind] for kind in listed], "it follows from block_types")
    return decoder(f, tuple(parts[kind] for kind in listed))


def rwkv(f: Fields) -> Decoder:
    """RWKV-4 (arXiv:2305.13048): a token shift before mixer and MLP, three sums a channel, all element-wise."""
    hidden = f.integer("hidden_size")
    wide = f.optional("attention_hidden_size") or f.derive("attention_hidden_size", hidden, "hidden_size")
    width = f.optional("intermediate_size") or f.derive("intermediate_size", 4 * hidden, "4 * hidden_size")
    mixer = Recurrent(
        matrices=(
            (Term.q_proj, None, wide),  # the receptance
            (Term.k_proj, None, wide),
            (Term.v_proj, None, wide),
            (Term.o_proj, wide, None),
        ),
        shifted=2 * hidden,
        scanned=3 * wide,
    )
    layer = Layer(mixer=mixer, beside=further((None, None)), mlp=Mlp(width=width, gated=False))
    return decoder(f, (layer,) * depth(f))


def xlstm(f: Fields) -> Decoder:
    """xLSTM (arXiv:2405.04517): matrix memories with a normalizer, which is one column more, and a maximum a head."""
    hidden, heads = f.integer("hidden_size"), f.integer("num_heads")
    f.agrees("embedding_dim", hidden, "the hidden size under another name")
    f.agrees("num_blocks", depth(f), "num_hidden_layers under another name")
    keys = _rounded(hidden * f.number("qk_dim_factor"), 64)
    values = _rounded(hidden * f.number("v_dim_factor"), 64)
    if keys % heads or values % heads:
        raise InputError(f"{f.said('num_heads')}, expected a divisor of {keys} and {values}: of keys and values")
    f.set_aside("chunk_size", "chunkwise_kernel", "max_inference_chunksize", note=SCAN)
    f.set_aside("return_last_states", "inference_state_dtype", note=SCAN)
    mixer = Recurrent(
        matrices=(
            (Term.q_proj, None, keys),
            (Term.k_proj, None, keys),
            (Term.v_proj, None, values),
            (Term.extra_proj, None, values + 2 * heads),  # output gate, input and forget gates
            (Term.out_proj, values, None),
        ),
        num_heads=heads,
        key_dim=keys // heads,
        value_dim=values // heads + 1,
        scanned=heads,
    )
    width = _rounded(hidden * f.number("ffn_proj_factor"), f.integer("ffn_round_up_to_multiple_of"))
    return decoder(f, (Layer(mixer=mixer, mlp=Mlp(width=width)),) * depth(f))


def _rounded(size: float, step: int) -> int:
    """`size` rounded up to a multiple of `step`, as the model class rounds."""
    return int((size + step - 1) // step * step)


def _half(f: Fields, name: str) -> int:
    whole = f.integer(name, least=2)
    return f.derive("mlp width", whole // 2, f"{name} / 2")


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "recurrent_gemma": recurrent_gemma,
    "rwkv": rwkv,
    "xlstm": xlstm,
}
