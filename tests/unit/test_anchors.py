"""Published figures, reproduced exactly; each names where it was published."""

from __future__ import annotations

import pytest

from kvtally import Attention, Decoder, Experts, LatentAttention, Layer, Mlp, Pass, Term, count

NANOGPT = "github.com/karpathy/nanoGPT, transformer_sizing.ipynb"
CHINCHILLA = "Hoffmann et al., arXiv:2203.15556, table A4; github.com/karpathy/nanoGPT, scaling_laws.ipynb"
META = "transformers 5.24 traced on the meta device, 256 tokens, logits of all positions"


def alike(layers: int, *, mixer: Attention | LatentAttention, mlp: Mlp | Experts, hidden: int, vocab: int) -> Decoder:
    return Decoder(hidden_size=hidden, vocab_size=vocab, layers=(Layer(mixer=mixer, mlp=mlp),) * layers)


def heads(q: int, kv: int, dim: int, window: int | None = None) -> Attention:
    return Attention(num_heads=q, num_kv_heads=kv, head_dim=dim, window=window)


GPT2 = alike(12, mixer=heads(12, 12, 64), mlp=Mlp(width=3072, gated=False), hidden=768, vocab=50257)
LLAMA_8B = alike(32, mixer=heads(32, 8, 128), mlp=Mlp(width=14336), hidden=4096, vocab=128256)
MIXTRAL = alike(
    32, mixer=heads(32, 8, 128), mlp=Experts(num_experts=8, per_token=2, width=14336), hidden=4096, vocab=32000
)
QWEN3_30B = alike(
    48, mixer=heads(32, 4, 128), mlp=Experts(num_experts=128, per_token=8, width=768), hidden=2048, vocab=151936
)
GPT_OSS = Decoder(
    hidden_size=2880,
    vocab_size=201088,
    layers=tuple(
        Layer(mixer=heads(64, 8, 64, window), mlp=Experts(num_experts=32, per_token=4, width=2880))
        for window in (128, None) * 12
    ),
)
MLA = LatentAttention(
    num_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
)
DEEPSEEK_V3 = Decoder(
    hidden_size=7168,
    vocab_size=129280,
    layers=(Layer(mixer=MLA, mlp=Mlp(width=18432)),) * 3
    + (Layer(mixer=MLA, mlp=Experts(num_experts=256, per_token=8, width=2048, shared=2048)),) * 58,
)


def test_nanogpt_sizing_of_gpt2() -> None:
    tally = count(GPT2, [Pass(new=1024, logits=1024)], kernel="dense")
    terms = {term: 2 * n // 12 for term, n in tally.by("term").items() if term != Term.lm_head}
    assert terms[Term.q_proj] + terms[Term.k_proj] + terms[Term.v_proj] == 3_623_878_656, NANOGPT
    assert terms[Term.qk] == terms[Term.pv] == 1_610_612_736
    assert terms[Term.o_proj] == 1_207_959_552
    assert terms[Term.up_proj] == terms[Term.down_proj] == 4_831_838_208
    assert 2 * tally.by("term")[Term.lm_head] == 79_047_426_048
    assert tally.flops == 291_648_307_200


@pytest.mark.parametrize(
    ("layers", "hidden", "width", "num_heads", "head_dim", "published"),
    [
        (10, 640, 2560, 10, 64, 929_877_196_800),
        (20, 1024, 4096, 16, 64, 4_135_248_199_680),
        (24, 1280, 5120, 10, 128, 7_353_453_772_800),
        (26, 1792, 7168, 14, 128, 14_670_316_437_504),
        (28, 2048, 8192, 16, 128, 20_220_437_594_112),
        (40, 3584, 14336, 28, 128, 83_021_046_743_040),
    ],
)
def test_chinchilla_table_a4(
    layers: int, hidden: int, width: int, num_heads: int, head_dim: int, published: int
) -> None:
    # The table trains (backward = twice forward), adds 3 operations a softmax entry, which kvtally
    # does not count, and leaves the output head out.
    mixer = heads(num_heads, num_heads, head_dim)
    decoder = alike(layers, mixer=mixer, mlp=Mlp(width=width, gated=False), hidden=hidden, vocab=0)
    tally = count(decoder, [Pass(new=2048)], kernel="dense")
    softmax = 3 * num_heads * tally.pairs
    assert 3 * (tally.flops + softmax) == published, CHINCHILLA


@pytest.mark.parametrize(
    ("decoder", "macs"),
    [
        (MIXTRAL, 3_280_818_143_232),
        (QWEN3_30B, 804_433_952_768),
        (GPT_OSS, 936_313_356_288),
        (DEEPSEEK_V3, 9_539_642_458_112),
    ],
    ids=["mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3"],
)
def test_traced_at_256_tokens(decoder: Decoder, macs: int) -> None:
    assert count(decoder, [Pass(new=256, logits=256)], kernel="dense").total == macs, META


def test_llama_3_1_8b_at_1024_tokens() -> None:
    prefill = Pass(new=1024, logits=1024)
    assert count(LLAMA_8B, [prefill], kernel="dense").total == 7_959_648_141_312
    assert count(LLAMA_8B, [prefill], kernel="causal").total == 7_822_343_405_568
    assert count(LLAMA_8B, [Pass(new=1, past=1024, phase="decode")]).total == 7_773_356_032


def test_gpt2_decode_step_after_1024_tokens() -> None:
    assert count(GPT2, [Pass(new=1, past=1024, phase="decode")]).total == 142_424_832
