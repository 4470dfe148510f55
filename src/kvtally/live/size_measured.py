"""Bytes of a real transformers cache, filled on the meta device, against the bytes that are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kvtally.core.errors import InputError
from kvtally.core.passes import Pass
from kvtally.live.harness import UNRUN, as_found, build, convention, copies_kept, steps
from kvtally.live.own_caches import layers_of, states_on_modules
from kvtally.live.refusal import refused
from kvtally.live.zoo import elements
from kvtally.live.zoo_row import kept
from kvtally.pure.config import read_config

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}  # what a cache of transformers has unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayer:
    """One layer: elements expected in the cache of transformers, elements found there, bytes found there.

    `deviation` is how transformers is known to keep more or less than attention needs.
    """

    layer: int
    expected: int
    found: int
    bytes: int
    deviation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMeasured:
    """What the cache of one sequence holds in transformers after a prefill of `tokens`, layer by layer."""

    model: str
    tokens: int
    dtype: str
    layers: tuple[MeasuredLayer, ...]

    @property
    def wrong(self) -> tuple[MeasuredLayer, ...]:
        """Layers in which the cache has other elements than expected."""
        return tuple(layer for layer in self.layers if layer.expected != layer.found)

    @property
    def agree(self) -> bool:
        return not self.wrong

    @property
    def bytes(self) -> int:
        """All bytes found."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def deviations(self) -> dict[str, int]:
        """Known deviations, and in how many layers each was met."""
        names = [layer.deviation for layer in self.layers if layer.deviation]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def to_dict(self) -> dict[str, Any]:
        rows = [asdict(layer) for layer in self.layers]
        return {"agree": self.agree, "bytes": self.bytes, "dtype": self.dtype, "tokens": self.tokens, "layers": rows}

    def __str__(self) -> str:
        if self.agree:
            known = "; ".join(f"{name} in {many:,} layers" for name, many in self.deviations.items())
            lines = [
                f"measured: {self.bytes:,} bytes in the cache of transformers, all {len(self.layers):,} layers agree"
            ]
            return "\n".join([*lines, *([f"  it keeps {known}"] if known else [])])
        head = f"measured: {len(self.wrong):,} of {len(self.layers):,} layers differ"
        rows = (
            f"  layer {x.layer}: {x.expected:,} elements expected, {x.found:,} in the cache" for x in self.wrong[:20]
        )
        return "\n".join([head, *rows])


def measured_cache(
    config: Mapping[str, Any], tokens: int, *, dtype: str = "bf16", source: int | None = None
) -> CacheMeasured:
    """The cache of the transformers model that `config` describes, after one prefill of `tokens` on the meta device.

    Shapes alone are computed, without weights or memory. Elements are compared with what attention needs, layer by
    layer, after the known deviations: one token less of a full window, a tap more of a convolution, K and V repeated
    for every query head (Falcon). Bytes are those found: states may have another type than engines give them.

    >>> llama = dict(model_type="llama", hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
    ...              num_hidden_layers=3, intermediate_size=48, vocab_size=19)
    >>> measured_cache(llama, 10).bytes  # 3 * 2 * 10 * 2*8 * 2
    1920
    """
    if dtype not in DTYPES:
        raise InputError(
            f"`dtype` is {dtype!r}, expected one that a cache of transformers has as it is: {', '.join(DTYPES)}",
            where="--measure",
        )
    decoder = read_config(config, source=source)
    model, cache = _filled(config, tokens, DTYPES[dtype], source)
    apart, copies = states_on_modules(model), copies_kept(model)
    expected = kept(decoder, tokens)
    found, sizes = elements(cache), _bytes(cache)
    missing = [0] * (len(expected) - len(found))
    found, sizes = [*found, *missing], [*sizes, *missing]
    each = torch.finfo(getattr(torch, DTYPES[dtype])).bits // 8
    again = f"{copies} copies of K and V" if copies > 1 else ""
    layers = tuple(
        MeasuredLayer(
            layer=index,
            expected=copies * mine,
            found=found[index] + apart.get(index, 0),
            bytes=sizes[index] + each * apart.get(index, 0),
            deviation=" and ".join(filter(None, (note, again))),
        )
        for index, (mine, note) in enumerate(expected)
    )
    return CacheMeasured(model=str(config.get("model_type")), tokens=tokens, dtype=dtype, layers=layers)


def _filled(config: Mapping[str, Any], tokens: int, dtype: str, source: int | None) -> tuple[Any, Any]:
    """The model on the meta device, and its cache after the prefill."""
    with refused(UNRUN, where="--measure"):
        model = build(config, device="meta", dtype=dtype, attention="eager")
        with as_found(model):
            (step,) = steps(convention(model, source=source), [Pass(new=tokens)])
            step.run()
    return model, step.cache


def _bytes(cache: Any) -> list[int]:
    """Bytes of the tensors that each layer of a cache holds, both attentions of an encoder-decoder together."""
    if hasattr(cache, "cross_attention_cache"):
        both = _bytes(cache.self_attention_cache), _bytes(cache.cross_attention_cache)
        return [sum(pair) for pair in zip(*both, strict=True)]
    return [_tree(layer) for layer in layers_of(cache)]


def _tree(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() if value.dim() > 1 and value.is_floating_point() else 0
    if isinstance(value, dict):
        return sum(map(_tree, {id(held): held for held in value.values()}.values()))
    return sum(map(_tree, value)) if isinstance(value, list | tuple) else 0
