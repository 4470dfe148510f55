"""The decoders of encoder-decoder models: self attention, and attention to the encoder's output."""

from __future__ import annotations

from collections.abc import Callable

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Mlp
from kvtally.pure.config_dense import decoder
from kvtally.pure.config_fields import MOST_LAYERS, Fields

ENCODER = "the encoder is not counted"


def whisper(f: Fields) -> Decoder:
    """Whisper: the encoder gives `max_source_positions` positions, or fewer where `source` says so."""
    heads = f.integer("decoder_attention_heads")
    hidden = f.integer("hidden_size")
    if hidden % heads:
        both = f"{f.said('hidden_size')} and {f.said('decoder_attention_heads')}"
        raise InputError(f"{both}, expected a whole number for each head")
    longest = f.integer("max_source_positions")
    if f.source is not None and f.source > longest:
        raise InputError(f"`source` is {f.source:,} and {f.said('max_source_positions')}, expected at most that many")
    source = longest if f.source is None else f.derive("source", f.source, "argument")
    f.set_aside(
        "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", note=ENCODER,
    )  # fmt: skip
    mlp = Mlp(width=f.integer("decoder_ffn_dim"), gated=False)
    width = f.derive("head_dim", hidden // heads, "d_model / decoder_attention_heads")
    layer = _layer(heads, width, source, mlp)
    return decoder(f, (layer,) * f.integer("decoder_layers", most=MOST_LAYERS))


def t5(f: Fields) -> Decoder:
    """T5: heads `d_kv` wide whatever the hidden size; how long the source is must be said."""
    heads, width = f.integer("num_attention_heads"), f.integer("head_dim")
    if f.source is None:
        raise InputError(
            "`source` is not given, and a `t5` config does not fix how many tokens the encoder reads",
            hint="say how many: --source 512, or source=512 in Python",
        )
    f.derive("source", f.source, "argument")
    layers = f.optional("num_decoder_layers")
    depth = f.integer("num_hidden_layers", most=MOST_LAYERS)
    if layers is None:
        layers = f.derive("num_decoder_layers", depth, "num_layers")
    else:
        f.set_aside("num_hidden_layers", note=ENCODER)
    if layers > MOST_LAYERS:
        raise InputError(f"{f.said('num_decoder_layers')}, expected at most {MOST_LAYERS:,}")
    layer = _layer(heads, width, f.source, Mlp(width=f.integer("d_ff"), gated=_gated(f)))
    return decoder(f, (layer,) * layers)


def _gated(f: Fields) -> bool:
    act = f.word("feed_forward_proj").split("-")
    if not act[-1] or len(act) > 2 or (len(act) == 2 and act[0] != "gated"):
        raise InputError(f"{f.said('feed_forward_proj')}, expected an activation, or `gated-` and an activation")
    f.agrees("is_gated_act", len(act) == 2, f.said("feed_forward_proj"))
    return len(act) == 2


def _layer(heads: int, width: int, source: int, mlp: Mlp) -> Layer:
    return Layer(
        mixer=Attention(num_heads=heads, num_kv_heads=heads, head_dim=width),
        cross=CrossAttention(num_heads=heads, num_kv_heads=heads, head_dim=width, source=source),
        mlp=mlp,
    )


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "whisper": whisper,
    "t5": t5,
}
