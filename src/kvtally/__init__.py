"""Exact counts of what a KV cache saves, what it costs, and whether it is right."""

from kvtally.core.decoder import Decoder, Layer, lesson
from kvtally.core.errors import InputError, KvtallyError, MissingExtraError, UnreadableError
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, chunked, conversation, edited, prefix_hit, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.span import Span
from kvtally.core.tally import Comparison, Difference, Tally, Term, compare
from kvtally.pure.count_closed import count

__version__ = "0.1.0"

__all__ = [
    "Attention",
    "Comparison",
    "CrossAttention",
    "Decoder",
    "Difference",
    "Experts",
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
    "edited",
    "lesson",
    "prefix_hit",
    "uncached",
]
