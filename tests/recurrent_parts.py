"""Parts that tests of recurrent configs share; nothing in them is square."""

from __future__ import annotations

from typing import Any

from kvtally import Attention, Decoder, Layer, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config

HIDDEN = 24
BASE = {"hidden_size": HIDDEN, "vocab_size": 61, "intermediate_size": 34}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
GQA = Attention(num_heads=4, num_kv_heads=2, head_dim=6)
MLP = Mlp(width=34)


def read(model_type: str, **fields: Any) -> Decoder:
    return read_config({"model_type": model_type, **BASE, **fields})


def of(*layers: Layer, **more: Any) -> Decoder:
    return Decoder(**{"hidden_size": HIDDEN, "vocab_size": 61, "layers": layers, **more})


def gates(*matrices: tuple[int | None, int | None]) -> Recurrent:
    return Recurrent(matrices=tuple((Term.extra_proj, i, o) for i, o in matrices))
