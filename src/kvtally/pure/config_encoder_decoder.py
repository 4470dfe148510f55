"""The decoders of encoder-decoder models: self attention, and attention to the encoder's output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Mlp
from kvtally.pure.config_dense import attention, decoder, depth
from kvtally.pure.config_fields import CLASS_DEFAULT, MOST_LAYERS, Fields

ENCODER = "the encoder is not counted"


def bart(f: Fields) -> Decoder:
    """BART and its kin, whole or the decoder alone: `encoded` tells which."""
    return _stack(f, encoded(f))


def marian(f: Fields) -> Decoder:
    """Marian: logits over `decoder_vocab_size` where the two sides do not share embeddings."""
    whole = bart(f)
    if f.flag("share_encoder_decoder_embeddings"):
        f.set_aside("decoder_vocab_size", note="share_encoder_decoder_embeddings is true")
        return whole
    own = f.optional("decoder_vocab_size")
    if own is None:
        f.set_aside("share_encoder_decoder_embeddings", note="decoder_vocab_size is null")
    return replace(whole, vocab_size=own or whole.vocab_size)


def mvp(f: Fields) -> Decoder:
    """MVP: BART, whose prompts (K and V put before those of every layer) are refused."""
    if f.flag("use_prompt"):
        raise InputError(f"{f.said('use_prompt')}, expected false: K and V of prompts are not counted")
    f.set_aside("prompt_length", "prompt_mid_dim", note="use_prompt is false")
    return bart(f)


def bigbird_pegasus(f: Fields) -> Decoder:
    """BigBird-Pegasus: only its encoder attends to sparse blocks."""
    f.set_aside("attention_type", "block_size", "num_random_blocks", note=ENCODER)
    return bart(f)


def whisper(f: Fields) -> Decoder:
    """Whisper: the encoder gives `max_source_positions` positions, or fewer where `source` says so."""
    longest = f.integer("max_source_positions")
    if f.source is not None and f.source > longest:
        raise InputError(f"`source` is {f.source:,} and {f.said('max_source_positions')}, expected at most that many")
    f.set_aside("num_key_value_heads", note=ENCODER)
    return _stack(f, encoded(f, longest=longest))


def trocr(f: Fields) -> Decoder:
    """TrOCR, the decoder of a composite: attends to the image where `source` says how many positions that has."""
    source = encoded(f)
    return _stack(f, source, width_of_source(f, source))


def t5(f: Fields) -> Decoder:
    """T5: heads `d_kv` wide whatever the hidden size; how long the source is must be said."""
    f.agrees("is_encoder_decoder", True, "the decoder of this family is not built alone")
    heads, width = f.integer("num_attention_heads"), f.integer("head_dim")
    source = read_by_encoder(f)
    layers = f.optional("num_decoder_layers")
    own = f.integer("num_hidden_layers", most=MOST_LAYERS)
    if layers is None:
        layers = f.derive("num_decoder_layers", own, "num_layers")
    else:
        f.set_aside("num_hidden_layers", note=ENCODER)
    if layers > MOST_LAYERS:
        raise InputError(f"{f.said('num_decoder_layers')}, expected at most {MOST_LAYERS:,}")
    layer = layer_of(heads, width, source, Mlp(width=f.integer("d_ff"), gated=_gated(f)))
    return decoder(f, (layer,) * layers)


def mllama(f: Fields) -> Decoder:
    """Llama 3.2 Vision: its `text_config`."""
    return mllama_text(f.nested("text_config", "mllama_text_model"))


def mllama_text(f: Fields) -> Decoder:
    """Its decoder: layers of self attention, and in their place layers that attend to `source` positions of images.

    Without `source` the prompt is text alone, and those layers are skipped whole, MLP included.
    """
    mixer, mlp, layers = attention(f), Mlp(width=f.integer("intermediate_size")), depth(f)
    places = f.integers("cross_attention_layers", least=0, most=layers - 1)
    if places is None:
        places = tuple(range(3, 40, 5))
        f.derive("cross_attention_layers", f"every 5th from 3 on, below {min(layers, 40)}", CLASS_DEFAULT)
    if f.source is None:
        crossing = Layer()
    else:
        source = read_by_encoder(f)
        heads, kv = mixer.num_heads, mixer.num_kv_heads
        crossing = Layer(
            cross=CrossAttention(num_heads=heads, num_kv_heads=kv, head_dim=mixer.head_dim, source=source), mlp=mlp
        )
    return decoder(f, tuple(crossing if i in places else Layer(mixer=mixer, mlp=mlp) for i in range(layers)))


def encoded(f: Fields, *, longest: int | None = None) -> int | None:
    """How many tokens of an encoder's output the decoder attends to; None where it stands alone.

    `is_encoder_decoder` true means the Seq2Seq class: `source` says how many, else `longest`. False
    means the decoder alone, as the causal-LM class of these families builds it: its layers skip the
    attention to an encoder, unless `source` says that a composite gives them an output to attend to.
    """
    whole = f.knows("is_encoder_decoder") and f.flag("is_encoder_decoder")
    return read_by_encoder(f, longest) if whole or f.source is not None else None


def read_by_encoder(f: Fields, longest: int | None = None) -> int:
    """How many tokens the encoder reads: `source`, else `longest`; refused where nothing says so."""
    if f.source is not None:
        return f.derive("source", f.source, "argument")
    if longest is not None:
        return f.derive("source", longest, "max_source_positions")
    raise InputError(
        f"`source` is not given, and a `{f.model_type}` config does not fix how many tokens the encoder reads",
        hint="say how many: --source 512, or source=512 in Python",
    )


def width_of_source(f: Fields, source: int | None) -> int | None:
    """How wide an encoder's output is; None where it is as wide as the decoder, or not attended to."""
    if source is None:
        f.set_aside("cross_attention_hidden_size", note="without `source` no encoder is attended to")
        return None
    return f.optional("cross_attention_hidden_size")


def _stack(f: Fields, source: int | None, source_size: int | None = None) -> Decoder:
    """Equal layers by the `decoder_…` fields: MHA, attention to an encoder or not, MLP without a gate."""
    heads, hidden = f.integer("decoder_attention_heads"), f.integer("hidden_size")
    if hidden % heads:
        both = f"{f.said('hidden_size')} and {f.said('decoder_attention_heads')}"
        raise InputError(f"{both}, expected a whole number for each head")
    width = f.derive("head_dim", hidden // heads, "d_model / decoder_attention_heads")
    layer = layer_of(heads, width, source, Mlp(width=f.integer("decoder_ffn_dim"), gated=False), source_size)
    layers = f.integer("decoder_layers", most=MOST_LAYERS)
    f.set_aside(
        "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "num_hidden_layers", "num_attention_heads",
        note=ENCODER,
    )  # fmt: skip
    return decoder(f, (layer,) * layers)


def _gated(f: Fields) -> bool:
    act = f.word("feed_forward_proj").split("-")
    if not act[-1] or len(act) > 2 or (len(act) == 2 and act[0] != "gated"):
        raise InputError(f"{f.said('feed_forward_proj')}, expected an activation, or `gated-` and an activation")
    f.agrees("is_gated_act", len(act) == 2, f.said("feed_forward_proj"))
    f.set_aside("dense_act_fn", note="feed_forward_proj names the activation")
    return len(act) == 2


def layer_of(heads: int, width: int, source: int | None, mlp: Mlp, source_size: int | None = None) -> Layer:
    """MHA and MLP, with attention to `source` tokens of an encoder where that is not None."""
    mixer = Attention(num_heads=heads, num_kv_heads=heads, head_dim=width)
    if source is None:
        return Layer(mixer=mixer, mlp=mlp)
    cross = CrossAttention(num_heads=heads, num_kv_heads=heads, head_dim=width, source=source, source_size=source_size)
    return Layer(mixer=mixer, cross=cross, mlp=mlp)


_LIKE_BART = ("bart", "blenderbot", "blenderbot-small", "mbart", "pegasus", "plbart")

FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dict.fromkeys(_LIKE_BART, bart),
    "bigbird_pegasus": bigbird_pegasus,
    "marian": marian,
    "mvp": mvp,
    "whisper": whisper,
    "trocr": trocr,
    **dict.fromkeys(("t5", "mt5", "umt5"), t5),
    "mllama": mllama,
    "mllama_text_model": mllama_text,
}

# Those whose class is a whole encoder-decoder by default, so that `source` must be given (Whisper's may be).
WITH_ENCODER = (*_LIKE_BART, "bigbird_pegasus", "marian", "mvp", "whisper", "t5", "mt5", "umt5", "musicgen")
