"""Exact counts of what a KV cache saves, what it costs, and whether it is right."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer, lesson
from kvtally.core.errors import InputError, KvtallyError, MissingExtraError, UnreadableError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, chunked, conversation, edited, prefix_hit, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.span import Span
from kvtally.core.tally import Comparison, Difference, Tally, Term, compare
from kvtally.pure.count_closed import count

if TYPE_CHECKING:
    from kvtally.core.footprint import Footprint
    from kvtally.pure.config import read_config
    from kvtally.pure.described import describe, read_described
    from kvtally.pure.engines import reserved
    from kvtally.pure.gguf import read_gguf
    from kvtally.pure.model import read_model
    from kvtally.pure.size import size

__version__ = "0.1.0"

_LATER = {  # imported when they are first asked for
    "Footprint": "core.footprint",
    "describe": "pure.described",
    "read_config": "pure.config",
    "read_described": "pure.described",
    "read_gguf": "pure.gguf",
    "read_model": "pure.model",
    "reserved": "pure.engines",
    "size": "pure.size",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kvtally.{_LATER[name]}"), name)


__all__ = [
    "Attention",
    "Comparison",
    "CompressedAttention",
    "CrossAttention",
    "Decoder",
    "Difference",
    "Experts",
    "Footprint",
    "Indexer",
    "InputError",
    "KvtallyError",
    "LatentAttention",
    "Layer",
    "MissingExtraError",
    "Mlp",
    "Pass",
    "Recurrent",
    "Span",
    "Tally",
    "Term",
    "UnreadableError",
    "cached",
    "chunked",
    "compare",
    "conversation",
    "count",
    "describe",
    "edited",
    "lesson",
    "prefix_hit",
    "read_config",
    "read_described",
    "read_gguf",
    "read_model",
    "reserved",
    "size",
    "uncached",
]
