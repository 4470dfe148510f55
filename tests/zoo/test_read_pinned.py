"""What is read of every architecture, pinned: a change of the readers names the architectures it changes.

`python tests/zoo/test_read_pinned.py` pins what is read now; `kvtally facts NAME` shows what a digest stands for.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import transformers

from kvtally.core.errors import KvtallyError
from kvtally.live.zoo import names
from kvtally.live.zoo_shrink import shrunk
from kvtally.live.zoo_sizes import SOURCE
from kvtally.pure.config import read_facts
from kvtally.pure.described import describe

PINNED = Path(__file__).parents[1] / "data" / "read_pinned.json"


def digest(config: dict[str, Any]) -> str:
    """Of the decoder and its facts, or of the refusal."""
    try:
        decoder, facts = read_facts(config, source=SOURCE if config.get("is_encoder_decoder") else None)
        read = repr((describe(decoder), facts))
    except KvtallyError as error:
        read = str(error)
    return hashlib.sha256(read.encode()).hexdigest()[:12]


def both(name: str) -> list[str]:
    """Of the class's defaults, and of the tiny config."""
    found = []
    for make in (transformers.CONFIG_MAPPING[name], lambda: shrunk(name)):
        try:
            config = make().to_dict()
        except Exception as error:  # whatever a config class makes of itself
            found.append(type(error).__name__)
        else:
            found.append(digest(config))
    return found


@pytest.mark.parametrize("name", names())
def test_an_architecture_reads_as_it_did(name: str) -> None:
    pinned = json.loads(PINNED.read_text())
    if pinned["transformers"] != transformers.__version__:
        pytest.skip(f"pinned for transformers {pinned['transformers']}")
    assert both(name) == pinned["read"][name], "see `kvtally facts`; run: python tests/zoo/test_read_pinned.py"


if __name__ == "__main__":
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(both(name))}" for name in names())
    PINNED.write_text(f'{{"transformers": "{transformers.__version__}", "read": {{\n{rows}\n}}}}\n')
