"""What llama.cpp itself prints of its caches, on this machine, is what `engine_llama_cpp` says, character by character.

Needs the wheel `xllamacpp` (dependency group `engines`); files hold metadata alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.errors import InputError
from kvtally.pure.engine_llama_cpp import LlamaCppRules, lines
from kvtally.pure.engine_parts import Asked
from kvtally.pure.gguf import read_gguf
from kvtally.pure.size import cache_types

pytest.importorskip("gguf", reason="needs the gguf package to write files")
from engines.llama_cpp_engine import library
from engines.llama_cpp_files import ARCHITECTURES, written

pytestmark = pytest.mark.skipif(library() is None, reason="needs a real llama.cpp: pip install xllamacpp")

CONTEXTS = (5000, 1025)  # neither a multiple of 256; 1025 is not one of 4, either
SEQUENCES = ((1, False), (4, False), (4, True))  # how many, and whether they share their cells
DTYPES = (("fp16", "fp16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))


def asked(n_ctx: int, sequences: tuple[int, bool], k_v: tuple[str, str], full: bool, **more: Any) -> dict[str, Any]:
    many, unified = sequences
    return {
        "n_ctx": n_ctx, "n_seq_max": many, "kv_unified": unified, "type_k": k_v[0], "type_v": k_v[1],
        "swa_full": full, **more,
    }  # fmt: skip


ALL = [asked(*row) for row in product(CONTEXTS, SEQUENCES, DTYPES, (False, True))]
MIXED = asked(3000, (2, False), ("q8_0", "q5_1"), False, n_ubatch=64)
SMALL_BATCH = asked(9000, (3, True), ("fp32", "fp32"), False, n_ubatch=512, n_batch=100)


def printed(model: Path, settings: list[dict[str, Any]]) -> list[list[str]]:
    """What the engine prints for each of `settings`, in a process of its own."""
    job = json.dumps({"model": str(model), "settings": settings})
    program = str(Path(__file__).with_name("llama_cpp_engine.py"))
    env = os.environ | {"GGML_NO_BACKTRACE": "1"}
    run = subprocess.run(
        [sys.executable, program], input=job, capture_output=True, text=True, timeout=600, check=False, env=env
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: list[list[str]] = json.loads(run.stdout)
    return found


def said(model: Path, s: dict[str, Any]) -> list[str]:
    """What kvtally says that the engine prints."""
    rules = LlamaCppRules(
        n_ctx=s["n_ctx"], unified=s["kv_unified"], swa_full=s["swa_full"], n_ubatch=s.get("n_ubatch", 512),
        n_batch=s.get("n_batch", 2048), flash_attention=s.get("flash_attn", -1) != 0,
    )  # fmt: skip
    types = cache_types(s["type_k"], v_dtype=s["type_v"])
    return list(lines(read_gguf(model), Asked(tokens=1, batch=s["n_seq_max"], types=types), rules))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_lines(name: str, tmp_path: Path) -> None:
    """f16, q8_0, q4_0 x two context lengths x 1, 4 and 4 sequences in one stream x full sliding cache or not."""
    model = written(tmp_path / "model.gguf", *ARCHITECTURES[name])
    latent = "latent" in name or name == "kimi-linear"
    settings = [*ALL, SMALL_BATCH] if latent else [*ALL, SMALL_BATCH, MIXED]
    engine = printed(model, settings)
    assert len(engine) == len(settings) and all(engine)
    for ask, found in zip(settings, engine, strict=True):
        assert said(model, ask) == [without_snapshots(line) for line in found], ask


def without_snapshots(line: str) -> str:
    """The line without what newer versions add for models that have neither snapshots nor a third part."""
    return line.replace("  0 rs_seq)", ")").replace(", P (f32):    0.00 MiB", "")


def test_padded_values(tmp_path: Path) -> None:
    """Without flash attention V is padded to the widest layer."""
    model = written(tmp_path / "model.gguf", *ARCHITECTURES["openelm, heads by layer"])
    without, with_it = (asked(5000, (1, False), ("fp16", "fp16"), False, flash_attn=flash) for flash in (0, 1))
    engine = printed(model, [without, with_it])
    assert engine == [said(model, without), said(model, with_it)]
    assert engine[0] != engine[1]


def test_two_types_of_a_latent_are_refused_by_both(tmp_path: Path) -> None:
    model = written(tmp_path / "model.gguf", *ARCHITECTURES["deepseek2, latent"])
    with pytest.raises(AssertionError, match="does not support different K"):
        printed(model, [MIXED])
    with pytest.raises(InputError, match="expected the same"):
        said(model, MIXED)
