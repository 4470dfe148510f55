"""A real llama.cpp as an Adapter: a tiny Llama in a GGUF file of random weights, decoded through the C API of a wheel.

Run as a program: `llama_cpp_decoder.py FOLDER` writes a model there, checks it as it is and with a planted fault, a
crop of one token too many, and prints both reports as JSON. A process of its own: the engine aborts on what it
dislikes.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from engines.llama_cpp_engine import FIELDS, LOG, TYPES, Params, library
from kvtally.live.adapter import Adapter
from kvtally.live.check import check

HIDDEN, HEADS, KV_HEADS, WIDTH, LAYERS, VOCAB, CONTEXT = 64, 4, 2, 96, 2, 53, 256
HEAD_DIM = HIDDEN // HEADS
SHAPES = {
    "attn_q": (HIDDEN, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (WIDTH, HIDDEN), "ffn_up": (WIDTH, HIDDEN),
    "ffn_down": (HIDDEN, WIDTH), "attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,),
}  # fmt: skip
ASKED = {"n_ctx": CONTEXT, "n_batch": CONTEXT, "n_ubatch": CONTEXT, "n_threads": 1, "type_k": "fp32", "type_v": "fp32"}
ASKED |= {"flash_attn": 0}  # whose kernel for a single token keeps less than float32


class Batch(ctypes.Structure):
    """`struct llama_batch`."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


POINTER = ctypes.c_void_p
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LOG, POINTER)),
    "llama_model_default_params": (Params, ()),
    "llama_context_default_params": (Params, ()),
    "llama_model_load_from_file": (POINTER, (ctypes.c_char_p, Params)),
    "llama_init_from_model": (POINTER, (POINTER, Params)),
    "llama_free": (None, (POINTER,)),
    "llama_batch_init": (Batch, (ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)),
    "llama_batch_free": (None, (Batch,)),
    "llama_decode": (ctypes.c_int32, (POINTER, Batch)),
    "llama_get_logits": (ctypes.POINTER(ctypes.c_float), (POINTER,)),
    "llama_get_memory": (POINTER, (POINTER,)),
    "llama_memory_clear": (None, (POINTER, ctypes.c_bool)),
    "llama_memory_seq_rm": (ctypes.c_bool, (POINTER, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)),
}


def written(path: Path) -> Path:
    """A GGUF file of a Llama with random weights, large enough that every token matters."""
    numbers, writer = np.random.default_rng(5), gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("no_vocab")
    whole = {"token_embd": (VOCAB, HIDDEN), "output": (VOCAB, HIDDEN), "output_norm": (HIDDEN,)}
    shapes = whole | {f"blk.{k}.{name}": shape for k in range(LAYERS) for name, shape in SHAPES.items()}
    for name, shape in shapes.items():
        matrix = np.ones(shape) if len(shape) == 1 else numbers.normal(0, 1.2 / shape[1] ** 0.5, shape)
        writer.add_tensor(f"{name}.weight", matrix.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Engine:
    """The library with a model; `context()` is an empty cache of one sequence."""

    def __init__(self, file: Path) -> None:
        so = library()
        if so is None:
            raise SystemExit("xllamacpp is not installed")
        self.c, self.silent = ctypes.CDLL(str(so)), LOG(lambda _level, _text, _data: None)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        self.c.llama_backend_init()
        self.c.llama_log_set(self.silent, None)
        self.model = self.c.llama_model_load_from_file(str(file).encode(), self.c.llama_model_default_params())
        if not self.model:
            raise SystemExit("the engine does not load the model")

    def context(self) -> Context:
        params = self.c.llama_context_default_params()
        raw = bytearray(bytes(params.raw))
        for name, value in ASKED.items():
            form, at, _ = FIELDS[name]
            struct.pack_into(f"<{form}", raw, at, TYPES[value] if isinstance(value, str) else value)
        params.raw[:] = raw
        return Context(self.c, self.c.llama_init_from_model(self.model, params))


class Context:
    """A llama_context and how many tokens it holds; freed with it."""

    def __init__(self, c: ctypes.CDLL, pointer: int) -> None:
        self.c, self.pointer, self.past = c, pointer, 0

    def __del__(self) -> None:
        self.c.llama_free(self.pointer)

    def decode(self, ids: list[int], first: int) -> Any:
        """Logits (tokens, VOCAB) of so many new tokens, the first one at position `first`."""
        batch = self.c.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for k, token in enumerate(ids):
            batch.token[k], batch.pos[k], batch.n_seq_id[k], batch.logits[k] = token, first + k, 1, 1
            batch.seq_id[k][0] = 0
        code = self.c.llama_decode(self.pointer, batch)
        self.c.llama_batch_free(batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        self.past += len(ids)
        return np.ctypeslib.as_array(self.c.llama_get_logits(self.pointer), (len(ids), VOCAB)).copy()

    def crop(self, n: int) -> None:
        memory = self.c.llama_get_memory(self.pointer)
        if not self.c.llama_memory_seq_rm(memory, 0, self.past - n, -1):
            raise RuntimeError("llama_memory_seq_rm refused")
        self.past -= n

    def clear(self) -> None:
        self.c.llama_memory_clear(self.c.llama_get_memory(self.pointer), True)
        self.past = 0


def adapter(engine: Engine, *, crop_extra: int = 0) -> Adapter:
    """llama.cpp as an Adapter; `crop_extra` plants a fault: that many tokens too many are removed."""

    def full(ids: Any) -> Any:
        return np.stack([engine.context().decode(row, 0) for row in np.asarray(ids).tolist()])

    def extend(cache: Context, ids: Any) -> Any:
        rows = np.asarray(ids).tolist()
        if len(rows) > 1:
            raise NotImplementedError("one sequence a cache")
        return cache.decode(rows[0], cache.past)[None]

    return Adapter(
        full=full,
        extend=extend,
        fresh=engine.context,
        vocab_size=VOCAB,
        crop=lambda cache, n: cache.crop(n + crop_extra),
        reset=Context.clear,
        branch=None,
        name="llama.cpp",
    )


if __name__ == "__main__":
    found = Engine(written(Path(sys.argv[1]) / "tiny.gguf"))
    asked = ["steps", "edit", "reuse", "two conversations by turns"]
    reports = [check(adapter(found, crop_extra=extra), scenarios=asked).to_dict() for extra in (0, 1)]
    json.dump(reports, sys.stdout)
