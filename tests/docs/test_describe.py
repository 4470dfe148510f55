"""The page on describing a decoder: its Python, its JSON and the file beside it are one decoder."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvtally import Attention, Decoder, Layer, Mlp, read_described, read_model
from kvtally.pure.described import MIXERS, MLPS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "describe.md").read_text()


def test_the_file_the_block_and_the_python_are_one_decoder() -> None:
    block = re.search(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None and block[1] == (DOCS / "described.json").read_text()
    local, full = (
        Layer(mixer=Attention(num_heads=8, num_kv_heads=2, head_dim=32, window=window), mlp=Mlp(width=512))
        for window in (128, None)
    )
    by_hand = Decoder(hidden_size=256, vocab_size=1000, layers=(local, local, local, full))
    assert read_described(json.loads(block[1])) == by_hand == read_model(str(DOCS / "described.json"))


def test_every_kind_is_on_the_page_and_no_other() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    fields = {"beside", "cross", "reads", "repeat"}
    assert rows - fields == {*MIXERS, *MLPS}
    assert fields - {"repeat"} <= {*Layer.__slots__}
