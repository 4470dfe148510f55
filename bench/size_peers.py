"""`size` and its peers on published configs: the reference size, another number, or a refusal; and the time taken."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size
from kvfit.architectures import estimate_cache
from measure import seconds, side_by_side, write

from kvtally import read_config
from kvtally.pure.size import cache_types, held_bytes

FACTS = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[2] / "shared")) / "facts"
TOKENS = 32768
CONFIGS = {path.stem: json.loads(path.read_text()) for path in sorted((FACTS / "configs").glob("*.json"))}
SIZES: dict[str, int] = {  # of decoder-only models: an encoder's output is a size of its own
    name: held
    for name, held in json.loads((FACTS / "sizes_32768_bf16.json").read_text()).items()
    if "encoder_layers" not in CONFIGS[name]
}
TYPES = cache_types("bf16")
Sized = Callable[[dict[str, Any]], float]
Row = tuple[str, str, str]


def kvtally(config: dict[str, Any]) -> float:
    return held_bytes(read_config(config), TYPES)(TOKENS, 1)


def kvfit(config: dict[str, Any]) -> float:
    return sum(component.bytes for component in estimate_cache(config, context_tokens=TOKENS).components)


def hf_mem(config: dict[str, Any]) -> float:
    """As its command reads a config: the text part of a model of several kinds of input."""
    return compute_safetensors_kv_cache_size(config.get("text_config", config), "BF16", TOKENS)


def found(sized: Sized, name: str) -> str:
    """What a peer says of one config; a bare KeyError is a refusal too."""
    try:
        return "the reference" if sized(CONFIGS[name]) == SIZES[name] else "another number"
    except Exception:
        return "refused"


def all_of(sized: Sized, names: list[str]) -> float:
    def each() -> None:
        for name in names:
            sized(CONFIGS[name])

    return seconds(each)


def row(label: str, sized: Sized) -> Row:
    said = {name: found(sized, name) for name in SIZES}
    counts = Counter(said.values())
    answered = [name for name, what in said.items() if what != "refused" and found(kvtally, name) != "refused"]
    theirs, _, ratio = side_by_side(lambda: all_of(sized, answered), lambda: all_of(kvtally, answered))
    figure = ", ".join(f"{what} {counts[what]}" for what in ("the reference", "another number", "refused"))
    per = f"{1e6 * theirs / len(answered):.0f} µs each, {ratio:.2f}x kvtally on the {len(answered)} answered"
    return f"{label}, {len(SIZES)} configs at {TOKENS:,} tokens, bf16", figure, per


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    peers: dict[str, Sized] = {"kvtally": kvtally, "kvfit": kvfit, "hf-mem": hf_mem}
    rows = [row(label, sized) for label, sized in peers.items()]
    note = "hf-mem means what an engine reserves where layers slide in turn with others; the reference is what is held"
    write("size_peers", rows, f"kvfit {version('kvfit')}, hf-mem {version('hf-mem')}; {note}")
    print(*(" | ".join(row) for row in rows), sep="\n")
