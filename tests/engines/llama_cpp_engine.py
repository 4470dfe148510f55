"""A real llama.cpp, called through the C API in the wheel `xllamacpp`: the lines it prints of its caches.

Run as a program: reads {"model": path, "settings": [{...}, ...]} from stdin, writes a JSON list of lists of
lines to stdout. A model is built by the engine around metadata alone (`llama_model_init_from_user`); its
weights are allocated and never filled, as nothing is computed. A process of its own: the engine aborts on
what it dislikes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

# Where the fields of `struct llama_context_params` lie in the pinned wheel, and their defaults.
FIELDS = {
    "n_ctx": ("I", 0, 512), "n_batch": ("I", 4, 2048), "n_ubatch": ("I", 8, 512), "n_seq_max": ("I", 12, 1),
    "n_threads": ("i", 28, 4), "flash_attn": ("i", 52, -1), "type_k": ("i", 104, 1), "type_v": ("i", 108, 1),
    "offload_kqv": ("?", 137, True), "swa_full": ("?", 140, True), "kv_unified": ("?", 141, False),
}  # fmt: skip
TYPES = {"fp32": 0, "fp16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
WANTED = re.compile(r"llama_(kv_cache|memory_recurrent): size = ")
ERROR = 4  # ggml_log_level


class Params(ctypes.Structure):
    """More bytes than either struct of parameters has; both are passed in memory, and the rest is not looked at."""

    _fields_ = (("raw", ctypes.c_ubyte * 512),)


class GgufParams(ctypes.Structure):
    """`struct gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


SET_TENSOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LOG, ctypes.c_void_p)),
    "llama_model_default_params": (Params, ()),
    "llama_context_default_params": (Params, ()),
    "gguf_init_from_file": (ctypes.c_void_p, (ctypes.c_char_p, GgufParams)),
    "llama_model_init_from_user": (ctypes.c_void_p, (ctypes.c_void_p, SET_TENSOR, ctypes.c_void_p, Params)),
    "llama_init_from_model": (ctypes.c_void_p, (ctypes.c_void_p, Params)),
    "llama_free": (None, (ctypes.c_void_p,)),
}


def library() -> Path | None:
    """The wheel's library, or None where there is none."""
    found = importlib.util.find_spec("xllamacpp")
    places = found.submodule_search_locations if found else None
    return next((so for place in places or () for so in sorted(Path(place).glob("xllamacpp*.so"))), None)


def main() -> None:
    so = library()
    if so is None:
        raise SystemExit("xllamacpp is not installed")
    engine = ctypes.CDLL(str(so))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(engine, name)
        function.restype, function.argtypes = result, arguments
    job, seen = json.load(sys.stdin), list[str]()
    log = LOG(lambda level, text, _: seen.append(f"{level} {text.decode()}"))
    engine.llama_backend_init()
    engine.llama_log_set(log, None)
    metadata = engine.gguf_init_from_file(job["model"].encode(), GgufParams(True, None))
    leave_empty = SET_TENSOR(lambda tensor, _: None)
    model = engine.llama_model_init_from_user(metadata, leave_empty, None, engine.llama_model_default_params())
    if not model:
        raise SystemExit("the engine does not build it: " + _errors(seen))
    json.dump([_lines(engine, model, settings, seen) for settings in job["settings"]], sys.stdout)


def _lines(engine: ctypes.CDLL, model: int, settings: dict[str, Any], seen: list[str]) -> list[str]:
    params = engine.llama_context_default_params()
    raw = bytearray(bytes(params.raw))
    for name, (form, at, default) in FIELDS.items():
        (found,) = struct.unpack_from(f"<{form}", raw, at)
        if found != default:
            raise SystemExit(f"llama_context_params has another layout in this wheel: {name} is {found}, not {default}")
        value = settings.get(name, default)
        struct.pack_into(f"<{form}", raw, at, TYPES[value] if isinstance(value, str) else value)
    params.raw[:] = raw
    seen.clear()
    context = engine.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"the engine refuses {settings}: " + _errors(seen))
    engine.llama_free(context)
    return [text.partition(" ")[2].strip() for text in seen if WANTED.search(text)]


def _errors(seen: list[str]) -> str:
    return "".join(text[2:] for text in seen if text.startswith(str(ERROR)))


if __name__ == "__main__":
    main()
