"""Brings `pure/config_classes.json` up to the installed transformers: spellings and defaults of its classes.

`python tests/zoo/config_classes.py` adds what is missing and keeps what stands there; names that only
old files use were added by hand.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvtally.pure.config import FAMILIES
from kvtally.pure.config_fields import BEARS, HARMLESS
from kvtally.pure.config_multimodal import DECODERS

FILE = Path(__file__).parents[2] / "src" / "kvtally" / "pure" / "config_classes.json"
# Read although they are no causal LM by their class.
ALSO = ("t5", "mt5", "umt5", "qwen3_vl", "qwen3_vl_moe", "minimax_m3_vl", "mistral4", *DECODERS)

# Fields that are read although their names do not tell that they bear on cache or work.
READ = frozenset(
    {
        "vocab_size", "is_decoder", "embedding_size", "input_embedding_size", "output_embedding_size",
        "concat_input", "enable_shape", "shape_embed_dim", "enable_pronunciation", "pronunciation_embed_dim",
        "num_codebooks", "laurel_rank", "altup_num_inputs", "attention_k_eq_v", "use_double_wide_mlp",
        "local_attention", "dim_ff", "dff", "prompt_length", "prompt_types", "word_embed_proj_dim",
        "output_vocab_size", "gating", "use_bidirectional_attention", "adapter_reduction_factor",
        "feed_forward_proj", "decoder_vocab_size", "use_prompt", "ngram", "num_buckets",
    }
)  # fmt: skip


def classes() -> dict[str, Any]:
    """The config class of every causal LM, of every config nested in one, of decoders inside others, by model_type."""
    found = {name: CONFIG_MAPPING[name] for name in (*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *ALSO)}
    for name, outer in list(found.items()):
        for inner in (getattr(outer, "sub_configs", None) or {}).values():
            kind = getattr(inner, "model_type", "") if dataclasses.is_dataclass(inner) else ""
            if kind and (name not in DECODERS or kind in FAMILIES):
                found.setdefault(kind, inner)
    return found


def defaults(config_class: Any) -> dict[str, Any]:
    """Plain defaults of the fields that bear on the cache or the work."""
    fields = {f.name: f.default for f in dataclasses.fields(config_class)}
    plain = {name: value for name, value in fields.items() if _bears(name) and _plain(value)}
    return plain | ({"is_encoder_decoder": True} if fields.get("is_encoder_decoder") else {})


def spellings(config_class: Any, given: dict[str, Any]) -> dict[str, list[str]]:
    """Other names of those fields, by the common one."""
    names: dict[str, list[str]] = {}
    for common, own in (config_class.attribute_map or {}).items():
        if own in given or common in given:
            names.setdefault(common, []).append(own)
    return names


def _bears(name: str) -> bool:
    return name in READ or bool(BEARS.search(name) and not HARMLESS.fullmatch(name))


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str | list | tuple | dict)


def main() -> None:
    document = json.loads(FILE.read_text())
    known = document["classes"]
    for name, config_class in classes().items():
        entry = known.get(name, {})
        entry["defaults"] = defaults(config_class) | entry.get("defaults", {})
        names = entry.get("names", {})
        for common, own in spellings(config_class, entry["defaults"]).items():
            names[common] = list(dict.fromkeys([*names.get(common, []), *own]))
        if names:
            entry["names"] = names
        if name not in DECODERS or entry["defaults"]:
            known[name] = entry
    document["source"] = (
        f"configuration classes of transformers {transformers.__version__}; "
        "RefinedWeb and RefinedWebModel: files of 2023"
    )
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in known.items())
    FILE.write_text(f'{{\n  "source": {json.dumps(document["source"])},\n  "classes": {{\n{rows}\n  }}\n}}\n')


if __name__ == "__main__":
    main()
