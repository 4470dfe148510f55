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
    from kvtally.pure.config import read_config
    from kvtally.pure.described import describe, read_described
    from kvtally.pure.gguf import read_gguf
    from kvtally.pure.model import read_model

__version__ = "0.1.0"

_READERS = {  # imported when they are first asked for
    "describe": "described",
    "read_config": "config",
    "read_described": "described",
    "read_gguf": "gguf",
    "read_model": "model",
}


def __getattr__(name: str) -> object:
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kvtally.pure.{_READERS[name]}"), name)


__all__ = [
    "Attention",
    "Comparison",
    "CompressedAttention",
    "CrossAttention",
    "Decoder",
    "Difference",
    "Experts",
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
    "uncached",
]
