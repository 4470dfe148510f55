"""GGUF architectures with latent attention: DeepSeek-V2 and V3, MiniCPM3, PLM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.core.latent_mixer import LatentAttention
from kvtally.pure.gguf_keys import Keys
from kvtally.pure.gguf_parts import depth, head_widths, mlps, nowhere, stack

HEADS, ROPE, MLA = "attention.head_count", "rope.dimension_count", "_mla"


def deepseek2(k: Keys) -> Decoder:
    """DeepSeek-V2 and V3, Kimi-K2, GLM-4.7-Flash: in two forms, which llama.cpp caches differently.

    Files with `key_length_mla` cache the latent of a token (`head_count_kv` is 1 then). Older ones cache
    K and V of every head; keys, values and everything multiplied are otherwise the same.
    """
    nowhere(k)
    return stack(k, (latent_attention(k),) * depth(k), mlps(k))


def latent_attention(k: Keys) -> LatentAttention:
    """Latent attention, `per_head` where the file is of the older form."""
    heads = k.integer(HEADS, least=1)
    if k.has(f"attention.key_length{MLA}"):
        key, value = (k.integer(f"attention.{name}_length{MLA}", least=1) for name in ("key", "value"))
        made = _latent(k, heads, key, value)
        k.agrees("attention.key_length", made.latent, "kv_lora_rank + rope.dimension_count is cached")
        k.agrees("attention.value_length", made.kv_lora_rank, "the latent is mixed")
        k.set_aside("attention.head_count_kv", note="all heads share the latent")
        return made
    k.agrees("attention.head_count_kv", heads, "without key_length_mla every head has K and V of its own")
    return replace(_latent(k, heads, *head_widths(k, heads)), per_head=True)


def _latent(k: Keys, heads: int, key: int, value: int) -> LatentAttention:
    rope = k.integer(ROPE)
    if key <= rope:
        raise InputError(
            f"`{k.arch}` has keys {key:,} wide and `{k.arch}.{ROPE}` is {rope:,}, expected keys wider than that"
        )
    return LatentAttention(
        num_heads=heads,
        kv_lora_rank=k.integer("attention.kv_lora_rank", least=1),
        qk_rope_head_dim=rope,
        qk_nope_head_dim=key - rope,
        v_head_dim=value,
        q_lora_rank=k.integer("attention.q_lora_rank", default=0) or None,
    )


def minicpm3(k: Keys) -> Decoder:
    """MiniCPM3 and PLM: latents that llama.cpp expands once and caches for every head."""
    nowhere(k)
    return stack(k, (latent_attention(k),) * depth(k), mlps(k, gated=k.arch != "plm"))


READERS: dict[str, Callable[[Keys], Decoder]] = {
    **dict.fromkeys(("deepseek2", "mistral4"), deepseek2),
    **dict.fromkeys(("minicpm3", "plm"), minicpm3),
}
