"""ANSWERS FROM A REAL MODEL. The only folder that imports torch."""

from importlib.util import find_spec

from kvtally.core.errors import MissingExtraError

if find_spec("torch") is None or find_spec("transformers") is None:
    raise MissingExtraError("`kvtally.live` runs a real model and needs PyTorch", hint="pip install 'kvtally[hf]'")

from kvtally.live.adapter import Adapter
from kvtally.live.check import check
from kvtally.live.count_traced import trace
from kvtally.live.harness import Convention, as_run, build, run
from kvtally.live.rounding import round_cache
from kvtally.live.rounding_cache import RoundingCache
from kvtally.live.twin import check_with_twin

__all__ = [
    "Adapter",
    "Convention",
    "RoundingCache",
    "as_run",
    "build",
    "check",
    "check_with_twin",
    "round_cache",
    "run",
    "trace",
]
