"""A real llama.cpp, checked through an Adapter: its cache is right, and a crop of one token too many is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="needs the gguf package to write files")
pytest.importorskip("torch")
from engines.llama_cpp_engine import library

pytestmark = pytest.mark.skipif(library() is None, reason="needs a real llama.cpp: pip install xllamacpp")


def test_a_decoder_in_c_is_checked(tmp_path: Path) -> None:
    program = Path(__file__).with_name("llama_cpp_decoder.py")
    env = os.environ | {"PYTHONPATH": str(program.parents[1]), "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=600, check=False, env=env
    )
    assert run.returncode == 0, run.stderr[-2000:]
    healthy, sick = json.loads(run.stdout)
    assert healthy["verdict"] == "rounding"
    assert {healthy["groups"][group] for group in ("power", "steps", "edit", "reuse")} <= {"same", "rounding"}
    errors = [a["error"] for a in healthy["agreements"]]
    assert 0 < max(errors) < 5e-6  # float32, no float64 to run again in
    assert sick["groups"]["edit"] == "DEFECT"
    assert sick["groups"]["steps"] == healthy["groups"]["steps"]
    wrong = [a for a in sick["agreements"] if a["verdict"] == "DEFECT"]
    assert {a["group"] for a in wrong} == {"edit"}
    assert min(a["error"] for a in wrong) > 1e-2
