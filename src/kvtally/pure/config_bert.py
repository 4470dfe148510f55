"""BERT and its kin run as causal decoders: projections around the layers, a transform before the output head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import CrossAttention, Mixer
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import decoder, full, mha, mlps, stack
from kvtally.pure.config_encoder_decoder import read_by_encoder
from kvtally.pure.config_fields import Fields

POOLER = ("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")


def bert(f: Fields) -> Decoder:
    """BERT, RoBERTa and most kin: MHA, MLP without a gate, logits after a hidden_size * hidden_size transform."""
    return _before_head(_causal(f), f.integer("hidden_size"))


def bert_generation(f: Fields) -> Decoder:
    """BERT for generation: no transform before the output head."""
    return _causal(f)


def big_bird(f: Fields) -> Decoder:
    """BigBird: block-sparse attention sees later tokens too, so a cached decoder attends to everything instead."""
    full = "a decoder with a cache attends to everything"
    f.set_aside("attention_type", "block_size", "num_random_blocks", note=full)
    return bert(f)


def electra(f: Fields) -> Decoder:
    """ELECTRA: embeddings and logits `embedding_size` wide."""
    return _narrow(f, f.integer("embedding_size"))


def roformer(f: Fields) -> Decoder:
    """RoFormer: embeddings and logits `embedding_size` wide, hidden_size where that is null."""
    return _narrow(f, f.optional("embedding_size") or f.integer("hidden_size"))


def rembert(f: Fields) -> Decoder:
    """RemBERT: narrow embeddings, wide logits, a projection for each."""
    projected = ((f.integer("input_embedding_size"), f.integer("hidden_size")),)
    return _before_head(replace(_causal(f), outside=projected), f.integer("output_embedding_size"))


def roc_bert(f: Fields) -> Decoder:
    """RoCBert: the embeddings of a character, its sound and its shape are put together and projected."""
    if not f.flag("concat_input"):
        return bert(f)
    hidden = f.integer("hidden_size")
    sound = f.integer("pronunciation_embed_dim") if f.flag("enable_pronunciation") else 0
    shape = f.integer("shape_embed_dim") if f.flag("enable_shape") else 0
    return replace(bert(f), outside=((hidden + sound + shape, hidden),))


def xmod(f: Fields) -> Decoder:
    """X-MOD: after every MLP the adapter of the text's language, hidden_size / `adapter_reduction_factor` wide."""
    hidden, factor = f.integer("hidden_size"), f.integer("adapter_reduction_factor")
    narrow = f.derive("adapter_size", hidden // factor, "hidden_size / adapter_reduction_factor, rounded down")
    if not narrow:
        raise InputError(f"{f.said('hidden_size')} and {f.said('adapter_reduction_factor')}, expected no more than it")
    matrices = ((Term.extra_proj, None, narrow), (Term.extra_proj, narrow, None))
    return _before_head(_causal(f, beside=(Recurrent(matrices=matrices),)), hidden)


def git(f: Fields) -> Decoder:
    """GIT: a BERT of text that reads the image as a prefix of the prompt; no transform before the output head."""
    return stack(f, full(f), mlps(f, gated=False), mixer=mha(f))


def _causal(f: Fields, *, beside: tuple[Mixer, ...] = ()) -> Decoder:
    """The layers, each with attention to an encoder where `add_cross_attention` says so."""
    if not f.flag("is_decoder"):
        raise InputError(
            f"{f.said('is_decoder')}, expected true: otherwise every token sees later ones, and there is no cache",
            hint="set `is_decoder` to true where the model is run as a causal decoder",
        )
    f.set_aside(*POOLER, note="a pooler makes no logits")
    mixer, cross = mha(f), _cross(f)
    return decoder(f, tuple(Layer(mixer=mixer, cross=cross, mlp=mlp, beside=beside) for mlp in mlps(f, gated=False)))


def _cross(f: Fields) -> CrossAttention | None:
    """Attention to `source` tokens of an encoder, where every layer has it."""
    if not f.flag("add_cross_attention"):
        return None
    own, source = mha(f), read_by_encoder(f)
    return CrossAttention(num_heads=own.num_heads, num_kv_heads=own.num_heads, head_dim=own.head_dim, source=source)


def _narrow(f: Fields, width: int) -> Decoder:
    """Embeddings of `width`, projected to hidden_size where it differs, and logits made from that width."""
    hidden = f.integer("hidden_size")
    projected = () if width == hidden else ((width, hidden),)
    return _before_head(replace(_causal(f), outside=projected), width)


def _before_head(whole: Decoder, width: int) -> Decoder:
    """The decoder with a transform to `width` before its output head."""
    return replace(whole, head=((whole.hidden_size, width),))


_LIKE_BERT = (
    "bert", "camembert", "data2vec-text", "ernie", "megatron-bert", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl",
)  # fmt: skip

FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    **dict.fromkeys(_LIKE_BERT, bert),
    "bert-generation": bert_generation,
    "big_bird": big_bird,
    "electra": electra,
    "git": git,
    "rembert": rembert,
    "roc_bert": roc_bert,
    "roformer": roformer,
    "xmod": xmod,
}
