"""Decoders inside a larger config, and Llama 4 and MiniMax-M3, which are read both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.mlp import Mlp
from kvtally.pure.config_dense import FULL, attention, decoder, depth, expect_each, llama, per_layer
from kvtally.pure.config_experts import FEW, experts, mixture, sparse_as_listed, stepped
from kvtally.pure.config_fields import CLASS_DEFAULT, Fields
from kvtally.pure.config_gemma import inside
from kvtally.pure.config_gpt import gpt_neox
from kvtally.pure.config_window import FAMILIES as SLIDING_FAMILIES

CHUNKED, SPARSE = "chunked_attention", "minimax_m3_sparse"


def llama4_text(f: Fields) -> Decoder:
    """Llama 4: layers with rotary positions see their own chunk; experts in every `interleave_moe_layer_step`-th.

    transformers runs all experts on every token: the surplus.
    """
    kinds, sparse = _llama4_kinds(f), _llama4_sparse(f)
    chosen = replace(experts(f, replace(FEW, shared="intermediate_size")), all_run=True)
    dense = Mlp(width=f.integer("intermediate_size_mlp"))
    if all(sparse):
        f.set_aside("intermediate_size_mlp", note="no layer has this MLP")
    mixer, chunk = attention(f), f.optional("attention_chunk_size")
    if chunk is None and CHUNKED in kinds:
        raise InputError(f"`layer_types` has `{CHUNKED}` and {f.said('attention_chunk_size')}, expected a length")
    return decoder(
        f,
        tuple(
            Layer(mixer=replace(mixer, chunk=chunk if kind == CHUNKED else None), mlp=chosen if own else dense)
            for kind, own in zip(kinds, sparse, strict=True)
        ),
    )


def _llama4_kinds(f: Fields) -> tuple[str, ...]:
    layers, kinds = depth(f), f.words("layer_types", (FULL, CHUNKED))
    every = f.integer("no_rope_layer_interval")
    rotary = f.integers("no_rope_layers", least=0, most=1) or ()
    rotary = rotary or tuple(int((index + 1) % every != 0) for index in range(layers))
    if kinds is None:
        chunked = f.optional("attention_chunk_size") is not None
        f.derive("layer_types", f"{CHUNKED} with rotary positions, else {FULL}", CLASS_DEFAULT)
        kinds = tuple(CHUNKED if own and chunked else FULL for own in rotary)
    for name, given in (("layer_types", kinds), ("no_rope_layers", rotary)):
        if len(given) != layers:
            raise InputError(f"`{name}` has {len(given):,} entries, expected one for each of {layers:,} layers")
    return kinds


def _llama4_sparse(f: Fields) -> list[bool]:
    layers = depth(f)
    listed = f.integers("moe_layers", least=0, most=layers - 1)
    step = f.integer("interleave_moe_layer_step")
    chosen = range(step - 1, layers, step) if listed is None else listed
    return [index in chosen for index in range(layers)]


INDEXER = (  # of MiniMax-M3: fields, and what they are called in an object of older configs
    ("index_n_heads", "sparse_num_index_heads"), ("index_head_dim", "sparse_index_dim"),
    ("index_topk_blocks", "sparse_topk_blocks"), ("index_block_size", "sparse_block_size"),
)  # fmt: skip


def minimax_m3(f: Fields) -> Decoder:
    """MiniMax-M3: layers of `sparse_attention_freq` choose blocks of keys by an indexer with keys of its own."""
    layers, own = depth(f), f.part("sparse_attention_config")
    kinds, sparse = per_layer(f, "layer_types", (FULL, SPARSE)), sparse_as_listed(f)
    if kinds is None:
        picks = own.integers("sparse_attention_freq", least=0, most=1)
        kinds = (FULL,) * layers if picks is None else tuple(SPARSE if pick else FULL for pick in picks)
        expect_each(f, "sparse_attention_freq", kinds)
    if sparse is None:
        freq = f.integers("moe_layer_freq", least=0, most=1)
        sparse = [True] * layers if freq is None else [bool(one) for one in freq]
        expect_each(f, "moe_layer_freq", sparse)
    chosen = experts(f, FEW)
    dense = Mlp(width=f.integer("dense_intermediate_size"))
    if all(sparse):
        f.set_aside("dense_intermediate_size", note="no layer has this MLP")
    mixer = attention(f)
    _m3_agrees(f, own, chosen.width, kinds, sparse)
    indexer, top, block = _m3_indexer(f, own) if SPARSE in kinds else (None, None, 1)
    if SPARSE not in kinds:
        f.set_aside(*(name for name, _ in INDEXER), note="no layer chooses blocks")
    picked = replace(mixer, top_k=top, block=block)
    return decoder(
        f,
        tuple(
            Layer(
                mixer=picked if kind == SPARSE else mixer,
                beside=(indexer,) if kind == SPARSE and indexer else (),
                mlp=chosen if moe else dense,
            )
            for kind, moe in zip(kinds, sparse, strict=True)
        ),
    )


def _m3_indexer(f: Fields, own: Fields) -> tuple[Indexer, int, int]:
    """The indexer, how many blocks it chooses, and how many keys a block has."""

    def size(name: str, old: str) -> int:
        if not own.has(old):
            return f.integer(name)
        f.set_aside(name, note=f"sparse_attention_config.{old} says it")
        return own.integer(old)

    heads, width, top, block = (size(name, old) for name, old in INDEXER)
    return Indexer(num_heads=heads, head_dim=width, weighted=False), top, block


def _m3_agrees(f: Fields, own: Fields, width: int, kinds: Sequence[str], sparse: Sequence[bool]) -> None:
    f.agrees("moe_intermediate_size", width, "experts are intermediate_size wide")
    f.agrees("attention_output_gate", False, "its class has no output gate")
    f.agrees("first_k_dense_replace", sparse.index(True) if True in sparse else len(sparse), "moe_layer_freq")
    f.agrees("n_shared_experts", 1, "the shared expert is shared_intermediate_size wide")
    f.set_aside("index_local_blocks", note="among the blocks chosen")
    own.set_aside(
        "sparse_local_block", "sparse_init_block", "sparse_disable_index_value", "sparse_score_type",
        note="which blocks are chosen, not how many",
    )  # fmt: skip
    own.agrees("use_sparse_attention", True, "layers are listed as sparse")
    own.agrees("sparse_attention_freq", [int(kind == SPARSE) for kind in kinds], "layer_types says it")
    f.agrees("moe_layer_freq", [int(one) for one in sparse], "mlp_layer_types says it")


def minimax_m3_vl(f: Fields) -> Decoder:
    """MiniMax-M3 with a vision tower: its `text_config`."""
    f.set_aside("projector_hidden_size", "merged_hidden_size", note="of the vision tower")
    return minimax_m3(f.nested("text_config", "minimax_m3_vl_text"))


def moss(f: Fields) -> Decoder:
    """MOSS transcriber: a Qwen3 that reads audio."""
    f.set_aside("audio_chunk_size", note="of the audio tower")
    return SLIDING_FAMILIES["qwen3"](f.nested("text_config", "qwen3"))


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "llama4": inside("llama4_text", llama4_text),
    "llama4_text": llama4_text,
    "minimax_m3": minimax_m3,
    "minimax_m3_vl_text": minimax_m3,
    "minimax_m3_vl": minimax_m3_vl,
    "emu3": inside("emu3_text_model", llama),
    "fuyu": inside("persimmon", gpt_neox),
    "got_ocr2": inside("qwen2", SLIDING_FAMILIES["qwen2"]),
    "moss_transcribe_diarize": moss,
    "qwen3_vl": inside("qwen3_vl_text", llama),
    "qwen3_vl_moe": inside("qwen3_vl_moe_text", mixture(stepped())),
}
