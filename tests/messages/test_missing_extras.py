"""Without its extra a verb says so in one line and ends with 3; without any, the base verbs answer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvtally.frontends.cli import kvtally

EXTRAS = ("torch", "transformers", "safetensors", "huggingface_hub", "accelerate", "ray", "numpy", "numba", "pyarrow")
BARE = f"""
import sys
for name in {EXTRAS}:
    sys.modules[name] = None  # as if it were not installed
from kvtally.frontends.cli import main
sys.exit(main(sys.argv[1:]))
"""
LINE = re.compile(r"[^\n]+\n\nhint: pip install 'kvtally\[(\w+)\]'\n")
ROW = '{"timestamp": 0, "input_length": 512, "output_length": 9, "hash_ids": [1]}\n'
MISSING = {
    "count gpt2 --prompt 4 --new 2 --against traced": "hf",
    "size gpt2 --measure": "hf",
    "check llama": "hf",
    "check --zoo --only llama": "hf",
    "check --zoo --only llama --engine ray": "hf",
    "round llama": "hf",
    "zoo --only llama": "hf",
    "zoo --new": "hf",
    "zoo --only llama --engine ray": "hf",
    "replay trace.jsonl": "traffic",
    "replay convert trace.jsonl --to trace.parquet": "traffic",
}
ENOUGH = ("count", "count gpt2 --against executed --format json", "size gpt2 --roofline", "facts gpt2", "models",
          "explore --no-open --out page.html", "lab start my-cache", "round --dial", "--help", "--version")  # fmt: skip


def bare(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "trace.jsonl").write_text(ROW)
    command = [sys.executable, "-c", BARE, *words.split()]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("words", MISSING)
def test_a_missing_extra_is_one_line_and_3(words: str, tmp_path: Path) -> None:
    run = bare(words, tmp_path)
    said = LINE.fullmatch(run.stderr)
    assert (run.returncode, run.stdout) == (3, ""), run.stderr
    assert said and said[1] == MISSING[words], run.stderr


@pytest.mark.parametrize("words", ENOUGH)
def test_the_base_install_is_enough(words: str, tmp_path: Path) -> None:
    run = bare(words, tmp_path)
    assert (run.returncode, run.stderr) == (0, "")


def test_every_verb_is_asked_here() -> None:
    assert {words.split()[0] for words in (*MISSING, *ENOUGH)} >= set(kvtally.commands)
