"""What each argument of a record or a function leads to, changed alone, pinned: its answer, or its refusal.

Answers are checked elsewhere; here a change names what it changes.
`PYTHONPATH=tests python tests/unit/test_changed_arguments.py` pins them anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer, lesson
from kvtally.core.errors import KvtallyError
from kvtally.core.footprint import Footprint
from kvtally.core.holding import holdings
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, chunked, conversation, edited, prefix_hit, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.reuse import Reuse
from kvtally.core.span import Span
from kvtally.core.strided_span import StridedSpan
from kvtally.pure.catalogue import names
from kvtally.pure.config import read_config
from kvtally.pure.count_closed import count
from kvtally.pure.described import read_described
from kvtally.pure.dial import dial
from kvtally.pure.engine_llama_cpp import LlamaCppRules
from kvtally.pure.engine_sglang import SglangRules
from kvtally.pure.engine_transformers import TransformersRules
from kvtally.pure.engine_vllm import VllmRules
from kvtally.pure.engines import reserved
from kvtally.pure.executed_layer import sigmoid, silu
from kvtally.pure.explain import explain_all
from kvtally.pure.model import read_model
from kvtally.pure.roofline import roofline
from kvtally.pure.round_by_hand import BY_HAND, read_back
from kvtally.pure.size import cache_types, size
from kvtally.pure.size_terms import products
from pinned import digest

PINNED = Path(__file__).parents[1] / "data" / "arguments_pinned.json"
ODD = (-1, 0, 1, 2, 7, 10**15, None, True, "nonsense", "q8_0", "fp32")
MIXER = Attention(num_heads=6, num_kv_heads=2, head_dim=4)
REUSE = {
    "requests": 2,
    "accesses": 8,
    "distinct": 5,
    "block_size": 16,
    "input_tokens": 128,
    "conventions": (("a", "b"),),
}
LATENT = {"num_heads": 3, "kv_lora_rank": 5, "qk_rope_head_dim": 2, "qk_nope_head_dim": 4, "v_head_dim": 3}
COMPRESSED = {"num_heads": 4, "head_dim": 3, "window": 5, "q_lora_rank": 2, "o_lora_rank": 3, "o_groups": 2}
RECURRENT = {"num_heads": 4, "key_dim": 3, "value_dim": 5, "conv_kernel": 4, "conv_channels": 12}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Attention": (Attention, {"num_heads": 6, "num_kv_heads": 2, "head_dim": 4, "v_head_dim": 3, "window": 5}),
    "Attention, chosen": (Attention, {"num_heads": 6, "num_kv_heads": 2, "head_dim": 4, "top_k": 8, "block": 4}),
    "CrossAttention": (CrossAttention, {"num_heads": 6, "num_kv_heads": 2, "head_dim": 4, "source": 9}),
    "LatentAttention": (LatentAttention, LATENT | {"q_lora_rank": 6, "absorbed": False, "window": 4}),
    "CompressedAttention": (CompressedAttention, COMPRESSED | {"ratio": 4, "overlap": True, "top_k": 3}),
    "Indexer": (Indexer, {"num_heads": 2, "head_dim": 3, "q_lora_rank": 4, "ratio": 2}),
    "Recurrent": (Recurrent, RECURRENT),
    "Mlp": (Mlp, {"width": 9, "gated": True}),
    "Experts": (Experts, {"num_experts": 6, "per_token": 2, "width": 5, "shared": 3, "shared_gate": 1, "latent": 4}),
    "Layer": (Layer, {"mixer": MIXER, "mlp": Mlp(width=9), "reads": None}),
    "Decoder": (Decoder, {"hidden_size": 24, "vocab_size": 31, "layers": (Layer(mixer=MIXER),), "name": "tiny"}),
    "Span": (Span, {"window": 5}),
    "StridedSpan": (StridedSpan, {"stride": 4, "top_k": 3}),
    "Pass": (Pass, {"new": 5, "past": 7, "phase": "decode", "times": 1, "logits": 3, "attending": 4}),
    "Pass, several": (Pass, {"new": 2, "past": 7, "phase": "decode", "times": 3, "logits": 1, "keep": True}),
    "cached": (cached, {"prompt": 5, "new": 4}),
    "uncached": (uncached, {"prompt": 5, "new": 4, "loop": "lesson"}),
    "chunked": (chunked, {"prompt": 9, "new": 4, "chunk": 2}),
    "prefix_hit": (prefix_hit, {"prompt": 9, "hit": 4, "new": 3}),
    "edited": (edited, {"length": 9, "at": 4, "new": 3}),
    "conversation": (conversation, {"turns": ((5, 2), (3, 4)), "carried": True}),
    "TransformersRules": (TransformersRules, {"cache": "static", "max_cache_len": 99}),
    "VllmRules": (VllmRules, {}),
    "SglangRules": (SglangRules, {}),
    "LlamaCppRules": (LlamaCppRules, {}),
    "Footprint": (lambda **k: Footprint(**k).to_dict(), {"tokens": 9, "batch": 2, "held": {(0, "k"): 5, (1, "v"): 0}}),
    "Reuse": (lambda at, **k: _reuse(Reuse(**k), at), REUSE | {"hits": [0, 1, 3], "tokens": [0, 16, 47], "at": 1}),
    "dial": (lambda **k: rounded(dial(**k).to_dict()), {"dtypes": ("int4", "q4_0"), "tokens": 4, "seed": 1}),
    "executed": (lambda **k: rounded([sigmoid(**k), silu(**k)]), {"v": 0.7}),
    "cache_types": (cache_types, {"name": "bf16", "k_dtype": "fp8", "v_dtype": "q4_0", "state_dtype": "fp16"}),
}  # fmt: skip
RULES = {"TransformersRules": TransformersRules, "VllmRules": VllmRules, "SglangRules": SglangRules}
RULES |= {"LlamaCppRules": LlamaCppRules}  # type: ignore[dict-item]
ROWS = ([0.0] * 64, [2.5] * 64, [(-1.0) ** i * i / 7 for i in range(64)], [1e-30 * i for i in range(64)])


def rounded(value: Any) -> Any:
    """Floats to nine digits: the last ones are those of a machine's `exp`."""
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return f"{value:.9g}" if isinstance(value, float) else value


def _reuse(found: Reuse, at: int) -> object:
    return found.to_dict(), str(found), found.at(at), found.share(at), found.token_share(at), found.states(at)


def changes(call: Callable[..., Any], given: dict[str, Any]) -> Iterator[str]:
    """What the arguments lead to, and what each of them does, changed alone."""
    for name, other in [("", None), *((name, other) for name in given for other in ODD)]:
        try:
            answer = repr(call(**(given | ({name: other} if name else {}))))
        except KvtallyError as error:
            answer = str(error)
        except (TypeError, AttributeError, ValueError) as error:  # of a kind that the types rule out
            answer = type(error).__name__
        yield f"{name} {other!r} {answer}"


def of_model(decoder: Decoder) -> Iterator[str]:
    """Sizes, reservations, terms, rooflines and counts of a decoder, and what their arguments lead to."""
    plain = {"tokens": 5000, "batch": 3, "dtype": "bf16", "k_dtype": "fp8", "v_dtype": None, "tensor_parallel": 1}
    more: dict[str, Any] = {"state_dtype": "fp32"}
    yield from changes(lambda **k: size(decoder, **k).to_dict(), plain | more)
    yield from changes(lambda **k: holdings(decoder, **k), {"tensor_parallel": 2})
    yield from changes(lambda **k: products(decoder, **k), {"tokens": 5000, "types": cache_types("bf16")})
    for engine in ("transformers", "vllm", "sglang", "llama.cpp"):
        yield from changes(lambda **k: reserved(engine, decoder, **k).to_dict(), plain | {"k_dtype": None})  # noqa: B023
    line = {"tokens": 5000, "batch": 3, "ridge": Fraction(295), "types": cache_types("fp8"), "weights": "bf16"}
    yield repr(roofline(decoder, **line).to_dict())  # type: ignore[arg-type]
    for passes in (cached(30, 4), uncached(30, 4), edited(30, 9, 4), chunked(30, 4, 7)):
        tally = count(decoder, passes)
        yield f"{tally.to_dict()} {tally!r} {tally._repr_html_()}"
        yield from changes(lambda batch: tally * batch, {"batch": 2})  # noqa: B023


def of_lines(case: dict[str, Any]) -> Iterator[str]:
    """What lines of a log are said to be, as they were printed and with each of their numbers one larger."""
    decoder, text = read_described(case["decoder"]), "\n".join(case["lines"])
    larger = [f"{text[: m.start()]}{int(m[0]) + 1}{text[m.end() :]}" for m in re.finditer(r"\d+", text)]
    for written in (text, *larger):
        yield from changes(lambda **k: explain_all(written, decoder, **k), case.get("options", {}))  # noqa: B023


def found(name: str) -> str:
    """The digest of a call, of a type read back by hand, or of a model."""
    if name in CALLS:
        call, given = CALLS[name]
        fields = {field: getattr(call(), field) for field in call.__slots__} if name in RULES and not given else given  # type: ignore[attr-defined]
        return digest(changes(call, fields))
    if name in BY_HAND:
        return digest(repr(read_back(name, row)) for row in ROWS)
    if name in LINES:
        return digest(of_lines(LINES[name]))
    if name in BARE:
        return digest(of_model(read_config({"model_type": name})))
    return digest(of_model(lesson() if name == "lesson" else read_model(name)))


LINES = {f"line {k}": case for k, case in enumerate(json.loads(PINNED.with_name("engine_lines.json").read_text()))}
BARE = (  # kinds of layers that no model of the catalogue has
    "deepseek_v32", "deepseek_v4", "qwen3_next", "mamba2", "jamba", "gemma3n_text", "minimax", "lfm2", "rwkv", "xlstm",
    "kimi_linear", "zamba2", "recurrent_gemma", "glm_moe_dsa", "falcon_h1", "llama4_text", "doge", "diffllama",
)  # fmt: skip
ALL = (*CALLS, *BY_HAND, *LINES, *BARE, "lesson", *(name for name in names() if not name.startswith("t5")))


@pytest.mark.parametrize("name", ALL)
def test_a_changed_argument_leads_to_what_it_did(name: str) -> None:
    assert found(name) == json.loads(PINNED.read_text())[name], (
        "run: PYTHONPATH=tests python tests/unit/test_changed_arguments.py"
    )


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: found(name) for name in ALL}, indent=0) + "\n")
