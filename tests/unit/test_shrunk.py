"""What each part of a decoder becomes when it is made small: its own sizes, no two alike, its pattern as it was."""

from __future__ import annotations

from typing import Any

import pytest

from kvtally import Attention, Decoder, Layer, Mlp
from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import CrossAttention
from kvtally.core.mlp import Experts
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term

BIG_AND_SMALL: list[tuple[Any, Any]] = [
    (
        Attention(num_heads=40, num_kv_heads=10, head_dim=64, v_head_dim=80, window=99, inputs=100),
        Attention(num_heads=6, num_kv_heads=2, head_dim=4, v_head_dim=3, window=5, inputs=9),
    ),
    (
        Attention(num_heads=8, num_kv_heads=8, head_dim=64, v_head_dim=64, chunk=99),
        Attention(num_heads=2, num_kv_heads=2, head_dim=4, v_head_dim=4, chunk=6),
    ),
    (
        Attention(num_heads=8, num_kv_heads=1, head_dim=2, top_k=50, block=64),
        Attention(num_heads=3, num_kv_heads=1, head_dim=2, top_k=3, block=2),
    ),
    (
        CrossAttention(num_heads=40, num_kv_heads=10, head_dim=64, source=99, source_size=100),
        CrossAttention(num_heads=6, num_kv_heads=2, head_dim=4, source=5, source_size=6),
    ),
    (
        LatentAttention(
            num_heads=9, kv_lora_rank=50, qk_rope_head_dim=20, qk_nope_head_dim=40, v_head_dim=30, q_lora_rank=60,
            top_k=70,
        ),
        LatentAttention(
            num_heads=3, kv_lora_rank=5, qk_rope_head_dim=2, qk_nope_head_dim=4, v_head_dim=3, q_lora_rank=4, top_k=3,
        ),
    ),
    (
        LatentAttention(
            num_heads=2, kv_lora_rank=50, qk_rope_head_dim=20, qk_nope_head_dim=40, v_head_dim=30, window=80,
        ),
        LatentAttention(num_heads=2, kv_lora_rank=5, qk_rope_head_dim=2, qk_nope_head_dim=4, v_head_dim=3, window=5),
    ),
    (
        CompressedAttention(
            num_heads=80, head_dim=64, window=99, q_lora_rank=50, o_lora_rank=60, o_groups=8, ratio=16, overlap=True,
            top_k=70,
        ),
        CompressedAttention(
            num_heads=4, head_dim=4, window=5, q_lora_rank=3, o_lora_rank=3, o_groups=2, ratio=3, overlap=True, top_k=2,
        ),
    ),
    (
        CompressedAttention(num_heads=3, head_dim=64, window=99, q_lora_rank=5, o_lora_rank=6, o_groups=1, ratio=16),
        CompressedAttention(num_heads=2, head_dim=4, window=5, q_lora_rank=3, o_lora_rank=3, o_groups=1, ratio=4),
    ),
    (
        Indexer(num_heads=9, head_dim=50, q_lora_rank=60, ratio=7),
        Indexer(num_heads=2, head_dim=3, q_lora_rank=4, ratio=2),
    ),
    (
        Recurrent(
            matrices=((Term.in_proj, None, 90), (Term.out_proj, 80, None), (Term.gate_proj, 70, 60)), conv_channels=99,
            conv_kernel=4, conv_group=3, num_heads=8, key_dim=50, value_dim=60, shifted=70, scanned=80,
        ),
        Recurrent(
            matrices=((Term.in_proj, None, 9), (Term.out_proj, 6, None), (Term.gate_proj, 6, 9)), conv_channels=6,
            conv_kernel=4, conv_group=2, num_heads=2, key_dim=3, value_dim=2, shifted=4, scanned=5,
        ),
    ),
    (Mlp(width=99), Mlp(width=6)),
    (
        Experts(num_experts=64, per_token=8, width=99, shared=50, router=(70, 2), latent=60),
        Experts(num_experts=4, per_token=2, width=5, shared=3, router=(4, 2), latent=4),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("big", "small"), BIG_AND_SMALL)
def test_a_part_gets_small_sizes_and_keeps_its_kind(big: Any, small: Any) -> None:
    assert big.shrunk() == small
    assert small.shrunk() == small


def test_a_decoder_keeps_two_layers_of_each_kind_and_their_donors() -> None:
    wide, narrow = (Layer(mixer=Attention(num_heads=1, num_kv_heads=1, head_dim=n), mlp=Mlp(width=n)) for n in (30, 3))
    reading = Layer(mixer=wide.mixer, mlp=wide.mlp, reads=2)
    decoder = Decoder(
        hidden_size=90, vocab_size=80, layers=(wide, narrow, wide, wide, narrow, narrow, reading),
        outside=((90, 70), (3, 2)), head=((90, 60),), name="n",
    )  # fmt: skip
    small = decoder.shrunk()
    assert (small.hidden_size, small.vocab_size, small.name) == (7, 11, "n, shrunk")
    assert small.outside == ((7, 5), (3, 2)) and small.head == ((7, 5),)
    assert [layer.mlp.width for layer in small.layers if layer.mlp] == [6, 3, 6, 3, 6]
    assert small.layers[-1].reads == 2
    assert Decoder(hidden_size=2, vocab_size=3, layers=(narrow,)).shrunk().name == "shrunk"
