"""Decoders of audio tokens: MusicGen, Moshi."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.core.mlp import Mlp
from kvtally.pure.config_dense import decoder, depth, mha, repeat, stack
from kvtally.pure.config_encoder_decoder import encoded, layer_of, read_by_encoder, width_of_source
from kvtally.pure.config_fields import Fields


def musicgen(f: Fields) -> Decoder:
    """MusicGen: its `decoder`, attending to `source` tokens of the text encoder."""
    read_by_encoder(f)
    return musicgen_decoder(f.nested("decoder", "musicgen_decoder"))


def musicgen_decoder(f: Fields) -> Decoder:
    """MusicGen's decoder: a row of logits for each codebook; attends to a text where `source` says how long it is."""
    f.set_aside("add_cross_attention", note="every layer can; `source` says whether it does")
    source = encoded(f)
    return _codebooks(f, source, width_of_source(f, source))


def musicgen_melody(f: Fields) -> Decoder:
    """MusicGen Melody: its `decoder`, which reads text and melody as a prefix of the prompt."""
    return musicgen_melody_decoder(f.nested("decoder", "musicgen_melody_decoder"))


def musicgen_melody_decoder(f: Fields) -> Decoder:
    """MusicGen Melody's decoder: a row of logits for each codebook, no attention to an encoder."""
    f.agrees("add_cross_attention", False, "its layers have no attention to an encoder")
    return _codebooks(f, None, None)


def moshi(f: Fields) -> Decoder:
    """Moshi's decoder of text tokens: slides by `sliding_window`, `ffn_dim` is gate and up together.

    The depth decoder and the audio codec are not counted.
    """
    f.set_aside("num_codebooks", note="audio tokens are made by the depth decoder, which is not counted")
    both = f.integer("ffn_dim", least=2)
    if both % 2:
        raise InputError(f"{f.said('ffn_dim')}, expected an even number: half of it is the gate")
    mlp = Mlp(width=f.derive("intermediate_size", both // 2, "ffn_dim / 2"))
    return stack(f, (f.optional("sliding_window"),) * depth(f), repeat(f, mlp))


def _codebooks(f: Fields, source: int | None, source_size: int | None) -> Decoder:
    """Equal layers, and one output head for each codebook."""
    mixer = mha(f)
    mlp = Mlp(width=f.integer("ffn_dim"), gated=False)
    layer = layer_of(mixer.num_heads, mixer.head_dim, source, mlp, source_size)
    whole = decoder(f, (layer,) * depth(f))
    return replace(whole, vocab_size=f.integer("num_codebooks") * whole.vocab_size)


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "moshi": moshi,
    "musicgen": musicgen,
    "musicgen_decoder": musicgen_decoder,
    "musicgen_melody": musicgen_melody,
    "musicgen_melody_decoder": musicgen_melody_decoder,
}
