"""What is kept of tokens that are not pooled yet: values and pooling weights, 2 x head_dim an entry."""

from __future__ import annotations

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.indexer_mixer import Indexer

SIZES = {"num_heads": 4, "head_dim": 3, "window": 5, "q_lora_rank": 2, "o_lora_rank": 3, "o_groups": 2}
CONTEXTS = range(10)


def test_an_entry_that_overlaps_keeps_the_last_tokens_once_they_are_pooled() -> None:
    """Ratio 4: 12 elements a token that waits, and from the fourth token on those of 4 tokens for the next entry."""
    expected = [0, 12, 24, 36, 24, 36, 48, 60, 24, 36]
    indexer = Indexer(num_heads=2, head_dim=3, q_lora_rank=4, ratio=4)
    assert [indexer.waiting(context) for context in CONTEXTS] == expected
    mixer = CompressedAttention(**SIZES, ratio=4, overlap=True)
    assert [mixer.waiting(context) for context in CONTEXTS] == expected


def test_an_entry_of_its_own_tokens_keeps_none_that_are_pooled() -> None:
    mixer = CompressedAttention(**SIZES, ratio=4)
    assert [mixer.waiting(context) for context in CONTEXTS] == [0, 6, 12, 18, 0, 6, 12, 18, 0, 6]


def test_where_nothing_is_pooled_nothing_waits() -> None:
    assert CompressedAttention(**SIZES, ratio=None).waiting(9) == 0
    assert Indexer(num_heads=2, head_dim=3, q_lora_rank=4).waiting(9) == 0
    assert Indexer(num_heads=2, head_dim=3, weighted=False, ratio=2, averaged=True).waiting(9) == 0
