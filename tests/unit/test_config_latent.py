"""Latent attention, indexers and compressed entries: decoders typed by hand, real files, sizes by hand."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config import read_config, read_facts
from kvtally.pure.config_compressed import HEAVY, SLIDING, SPARSE
from kvtally.pure.config_latent import FAMILIES
from kvtally.pure.count_closed import count

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "facts"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of shared facts (KVTALLY_SHARED)")

SIZES: dict[str, Any] = {
    "hidden_size": 48, "vocab_size": 101, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 6,
    "q_lora_rank": 14, "kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 9, "v_head_dim": 11,
    "intermediate_size": 70, "moe_intermediate_size": 20, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "n_shared_experts": 2, "index_n_heads": 3, "index_head_dim": 10, "index_topk": 7,
}  # fmt: skip
LATENT = LatentAttention(
    num_heads=6, q_lora_rank=14, kv_lora_rank=12, qk_rope_head_dim=4, qk_nope_head_dim=9, v_head_dim=11
)
CHOSEN = replace(LATENT, top_k=7)
INDEXER = Indexer(num_heads=3, head_dim=10, q_lora_rank=14)
WIDE, EIGHT = Mlp(width=70), Experts(num_experts=8, per_token=3, width=20, shared=40)


def read(family: str, **changes: Any) -> Decoder:
    return read_config({"model_type": family, **{k: v for k, v in (SIZES | changes).items() if v is not ...}})


def extra(*sizes: tuple[int | None, int | None]) -> Recurrent:
    return Recurrent(matrices=tuple((Term.extra_proj, *size) for size in sizes))


def of(*layers: Layer, **outside: Any) -> Decoder:
    return Decoder(hidden_size=48, vocab_size=101, layers=layers, **outside)


# How many dense layers stand first where the config says nothing, and where it says 2.
FIRST = {"deepseek_v2": (0, 2), "deepseek_v3": (3, 2), "axk1": (1, 2), "sarvam_mla": (1, 2), "glm4_moe_lite": (1, None)}


class TestLatentsAlone:
    @pytest.mark.parametrize("family", FIRST)
    def test_dense_layers_first(self, family: str) -> None:
        by_default, _ = FIRST[family]
        index = {"index_n_heads": ..., "index_head_dim": ..., "index_topk": ...}
        assert read(family, **index) == of(
            *(Layer(mixer=LATENT, mlp=WIDE if i < by_default else EIGHT) for i in range(5))
        )
        if FIRST[family][1]:
            two = read(family, first_k_dense_replace=2, moe_layer_freq=2, **index)
            assert [layer.mlp for layer in two.layers] == [WIDE, WIDE, EIGHT, WIDE, EIGHT]

    def test_kimi_k2_has_no_defaults(self) -> None:
        index = {"index_n_heads": ..., "index_head_dim": ..., "index_topk": ...}
        assert read("kimi_k2", first_k_dense_replace=1, **index).layers[1:] == (Layer(mixer=LATENT, mlp=EIGHT),) * 4
        with pytest.raises(InputError, match="`first_k_dense_replace` is missing, and `kimi_k2` has no default"):
            read("kimi_k2", **index)

    def test_dense_everywhere(self) -> None:
        given = {k: SIZES[k] for k in list(SIZES)[:11]}
        for family in ("minicpm3", "youtu"):
            assert read_config({"model_type": family, **given}) == of(*(Layer(mixer=LATENT, mlp=WIDE),) * 5)
        narrow = read_config({"model_type": "minicpm3", **given, "v_head_dim": None})
        assert narrow.layers[0].mixer == replace(LATENT, v_head_dim=48 // 6)

    def test_no_head_count_and_no_head_dim_is_the_cache(self) -> None:
        """576 elements a token of DeepSeek-V3, whatever 128 KV heads and a head_dim of 64 may suggest."""
        assert LATENT.kv_per_token == (16, 0)
        for head_dim in (4, 9, 13, 16):  # rope, nope, both, the latent: different files give different ones
            found = read("deepseek_v32", head_dim=head_dim).layers[0].mixer
            assert found is not None
            assert found.kv_per_token == (16, 0)

    def test_longcat_is_two_layers_a_layer(self) -> None:
        own = {
            "num_layers": 3,
            "ffn_hidden_size": 70,
            "expert_ffn_hidden_size": 20,
            "moe_topk": 3,
            "zero_expert_num": 5,
        }
        names = ("num_hidden_layers", "intermediate_size", "moe_intermediate_size", "num_experts_per_tok")
        names += ("n_shared_experts", "index_n_heads", "index_head_dim", "index_topk")
        shortcut = Experts(num_experts=8 + 5, per_token=3, width=20, shared=70)
        pair = (Layer(mixer=LATENT, mlp=shortcut), Layer(mixer=LATENT, mlp=WIDE))
        assert read("longcat_flash", **own, **dict.fromkeys(names, ...)) == of(*pair * 3)


class TestIndexers:
    def test_every_layer_of_deepseek_v32_has_one(self) -> None:
        def layer(mlp: Mlp | Experts) -> Layer:
            return Layer(mixer=CHOSEN, mlp=mlp, beside=(INDEXER,))

        assert read("deepseek_v32") == of(*map(layer, (WIDE, WIDE, WIDE, EIGHT, EIGHT)))
        assert read("deepseek_v32", mlp_layer_types=["sparse"] * 4 + ["dense"]).layers[3:] == (
            layer(EIGHT),
            layer(WIDE),
        )

    @pytest.mark.parametrize(
        "said",
        [
            {"indexer_types": ["full", "full", "shared", "shared", "full"]},
            {"index_topk_pattern": "FFSSF"},
            {"index_topk_pattern": ["full", "full", "shared", "shared", "full"]},
            {"index_topk_freq": 3, "index_skip_topk_offset": 2},
        ],
    )
    def test_layers_that_share_a_choice_have_no_indexer_and_no_index_keys(self, said: dict[str, Any]) -> None:
        layers = read("glm_moe_dsa", **said).layers
        assert [layer.beside for layer in layers] == [(INDEXER,), (INDEXER,), (), (), (INDEXER,)]
        assert {layer.mixer for layer in layers} == {CHOSEN}
        assert sum(layer.held(100) for layer in layers) == 100 * (5 * 16 + 3 * 10)

    def test_hunyuan_has_gates_and_streams(self) -> None:
        streams = extra((None, 6 * 11), (3 * 48, 6), (3 * 48, 6))
        full = Layer(mixer=CHOSEN, mlp=EIGHT, beside=(INDEXER, streams))
        shared = replace(full, beside=(streams,))
        expected = of(replace(full, mlp=WIDE), full, shared, shared, shared, outside=((3 * 48, 3),))
        assert read("hy_v4", hc_mult=3) == expected

    def test_axk2_has_gates_in_attention_and_norms(self) -> None:
        mixer = replace(CHOSEN, gated=True)
        first = Layer(mixer=mixer, mlp=WIDE, beside=(INDEXER, extra((None, 5), (5, None))))
        later = Layer(mixer=mixer, mlp=EIGHT, beside=(INDEXER, extra(*((None, 5), (5, None)) * 2)))
        assert read("axk2", gated_norm_rank=5) == of(first, *(later,) * 4)
        assert mixer.projections(48)[Term.q_b_proj] == (14 + 14) * 6 * (9 + 4 + 11)

    def test_dots3_has_latents_of_two_sizes(self) -> None:
        own = {
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "q_lora_rank": 8,
            "kv_lora_rank": 21,
            "v_head_dim": 5,
        }
        own |= {"head_dim": 10, "qk_nope_head_dim": 7, "qk_rope_head_dim": 3}
        swa = {f"swa_{name}": size for name, size in own.items()}
        slides = LatentAttention(
            num_heads=2, q_lora_rank=8, kv_lora_rank=21, qk_nope_head_dim=7, qk_rope_head_dim=3, v_head_dim=5, window=6
        )
        mlp = replace(EIGHT, shared=2 * 33)
        full = Layer(mixer=CHOSEN, mlp=mlp, beside=(INDEXER, extra((None, 6))))
        local = Layer(mixer=slides, mlp=mlp, beside=(extra((None, 2)),))
        expected = of(replace(full, mlp=WIDE), full, local, local, local)
        shared = {"shared_experts_intermediate_size": 33, "sliding_window_size": 6}
        assert read("dots3_note_text", **swa, **shared) == expected
        assert read("dots3_note_text", per_layer_config={"2": own, "03": own, "004": own}, **shared) == expected
        nested = {"model_type": "dots3_note", "text_config": {**SIZES, **swa, **shared}, "vision_config": {"depth": 9}}
        assert read_config(nested) == read("dots3_note", **swa, **shared) == expected
        plain = read("dots3_note_text", use_dsa=False, use_sliding_window=False).layers[3]
        assert (plain.mixer, plain.beside) == (LATENT, (extra((None, 6)),))

    def test_dots3_reads_what_each_layer_says_of_itself(self) -> None:
        """As `Dots3NoteTextConfig` does: 64 in layers 0 and 1, whatever their kind; an index of no layer is refused."""
        alone = {"kv_lora_rank": 64, "q_lora_rank": 8, "num_attention_heads": 2, "num_key_value_heads": 2}
        config = {"head_dim": 13, "layer_types": ["indexed_attention", "full_attention", *["sliding_attention"] * 3]}
        said = {"0": alone, "01": alone | {"head_dim": 4}, "4": {"kv_lora_rank": 5}}
        layers = read("dots3_note_text", **config, per_layer_config=said).layers
        assert [layer.mixer.kv_lora_rank for layer in layers] == [64, 64, 12, 12, 5]
        assert [layer.mixer.num_heads for layer in layers] == [2, 2, 6, 6, 6]
        assert [layer.mixer.top_k for layer in layers] == [7, None, None, None, None]
        assert layers[0].beside == (replace(INDEXER, q_lora_rank=8), extra((None, 2)))
        plain = read("dots3_note_text", **config, per_layer_config={})
        assert {layer.mixer.kv_lora_rank for layer in plain.layers} == {12}


V4: dict[str, Any] = {
    "hidden_size": 48, "vocab_size": 101, "num_hidden_layers": 3, "num_attention_heads": 6, "head_dim": 10,
    "sliding_window": 5, "q_lora_rank": 14, "o_lora_rank": 4, "o_groups": 2, "moe_intermediate_size": 20,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "index_n_heads": 3, "index_head_dim": 9, "index_topk": 7,
    "hc_mult": 2,
}  # fmt: skip


class TestCompressed:
    def read(self, **changes: Any) -> Decoder:
        return read_config({"model_type": "deepseek_v4", **V4, **changes})

    def test_kinds_by_ratio(self) -> None:
        mixer = CompressedAttention(num_heads=6, head_dim=10, window=5, q_lora_rank=14, o_lora_rank=4, o_groups=2)
        sparse = replace(mixer, ratio=4, overlap=True, top_k=7)
        streams = extra((2 * 48, 8), (4, 48), (2 * 48, 8), (4, 48))
        mlp = replace(EIGHT, shared=20)
        index = replace(INDEXER, head_dim=9, ratio=4)
        expected = of(
            Layer(mixer=mixer, mlp=mlp, beside=(streams,)),
            Layer(mixer=sparse, mlp=mlp, beside=(index, streams)),
            Layer(mixer=replace(mixer, ratio=128), mlp=mlp, beside=(streams,)),
            outside=((2 * 48, 2),),
        )
        assert self.read(compress_ratios=[0, 4, 128, 0]) == expected  # the fourth is a draft layer's
        assert self.read(layer_types=[SLIDING, SPARSE, HEAVY]) == expected

    def test_the_class_has_its_own_order_and_rates(self) -> None:
        assert [layer.mixer.ratio for layer in self.read(num_hidden_layers=5).layers] == [128, 128, 128, 4, 128]
        rates = self.read(num_hidden_layers=4, compress_rates={SPARSE: 3, HEAVY: 50}).layers
        assert [layer.mixer.ratio for layer in rates] == [50, 50, 50, 3]

    def test_held_is_the_window_and_the_entries(self) -> None:
        window, sparse, heavy = self.read(compress_ratios=[0, 4, 128]).layers
        assert window.held(300) == 5 * 10
        assert sparse.held(300) == 5 * 10 + 75 * 10 + 75 * 9
        assert heavy.held(300) == 5 * 10 + 2 * 10
        assert heavy.held(3) == 3 * 10

    def test_what_waits_is_said_apart(self) -> None:
        _, sparse, heavy = (layer.mixer for layer in self.read(compress_ratios=[0, 4, 128]).layers)
        assert heavy.waiting(300) == (300 - 256) * 2 * 10
        assert sparse.waiting(7) == 3 * 4 * 10 + 2 * 4 * 10  # three tokens, and the window before them again
        assert sparse.waiting(3) == 3 * 4 * 10


class TestCounts:
    def test_a_choice_limits_pairs_and_not_what_is_held(self) -> None:
        mixer = replace(LATENT, top_k=3)
        assert mixer.pairs(Pass(new=5), "causal") == 1 + 2 + 3 + 3 + 3
        assert mixer.pairs(Pass(new=1, past=9), "causal") == 3
        assert mixer.pairs(Pass(new=5), "dense") == 25
        assert mixer.tokens_held(10**6) == 10**6
        blocks = Attention(num_heads=4, num_kv_heads=2, head_dim=8, top_k=2, block=3)
        assert blocks.pairs(Pass(new=8), "causal") == 1 + 2 + 3 + 4 + 5 + 6 + (3 + 1) + (3 + 2)

    def test_an_indexer_scores_all_that_attention_does_not_look_at(self) -> None:
        tally = count(of(Layer(mixer=replace(LATENT, top_k=3), beside=(INDEXER,))), [Pass(new=5, logits=0)])
        macs = tally.by("term")
        assert macs[Term.index_q_proj] == 5 * 14 * 3 * 10
        assert macs[Term.index_k_proj] == 5 * 48 * 10
        assert macs[Term.index_weights_proj] == 5 * 48 * 3
        assert macs[Term.index_qk] == 15 * 3 * 10
        assert macs[Term.index_sum] == 15 * 3
        assert macs[Term.qk] == 12 * 6 * 13
        assert tally.cells() == {"k_write": 5 * (16 + 10)}
        assert tally.pairs == 12 + 15

    def test_entries_are_seen_once_their_last_token_is_there(self) -> None:
        mixer = CompressedAttention(
            num_heads=2, head_dim=4, window=2, q_lora_rank=3, o_lora_rank=5, o_groups=2, ratio=3
        )
        assert mixer.pairs(Pass(new=7), "causal") == (1 + 2 * 6) + (0 + 0 + 1 + 1 + 1 + 2 + 2)
        assert mixer.pairs(Pass(new=7), "dense") == 49 + 7 * 2
        assert (mixer.written(Pass(new=7)), mixer.read(Pass(new=1, past=7))) == (7 + 2, 1 + 2)
        assert mixer.projections(10)[Term.o_a_proj] == 2 * 4 * 5
        assert mixer.projections(10)[Term.o_b_proj] == 2 * 5 * 10

    def test_a_million_tokens_of_every_family_answer_at_once(self) -> None:
        for family in ("deepseek_v32", "deepseek_v4"):
            decoder = read_config({"model_type": family})
            passes = (*cached(10**6, 10**4), *uncached(10**4, 10**6))
            assert count(decoder, passes).total < count(decoder, passes, kernel="dense").total


REFUSED = [
    ("deepseek_v3", {"num_key_value_heads": 2}, "`num_key_value_heads` is 2, expected 6: all heads share the latent"),
    ("deepseek_v3", {"qk_head_dim": 12}, "`qk_head_dim` is 12, expected 13: qk_nope_head_dim + qk_rope_head_dim"),
    ("deepseek_v3", {"v_head_dim": None}, "`v_head_dim` is null, expected an integer"),
    ("deepseek_v2", {"num_experts_per_tok": 9}, "`num_experts_per_tok` is 9 and `n_routed_experts` is 8, expected at"),
    ("axk1", {"mlp_layer_types": ["dense"] * 4}, "`mlp_layer_types` has 4 entries and `num_hidden_layers` is 5"),
    ("axk1", {"mlp_layer_types": ["dense"] * 4 + ["odd"]}, "`mlp_layer_types[4]` is `odd`; known: `dense`, `sparse`"),
    ("axk1", {"first_k_dense_replace": 6}, "`first_k_dense_replace` is 6 and `num_hidden_layers` is 5, expected at"),
    ("glm4_moe_lite", {"first_k_dense_replace": 2}, "`first_k_dense_replace` is 2, expected 1: `glm4_moe_lite` has"),
    ("glm_moe_dsa", {"moe_layer_freq": 2}, "`moe_layer_freq` is 2, expected 1: `glm_moe_dsa` has experts in every"),
    (
        "dots3_note_text",
        {"moe_layer_freq": [1, 0]},
        "`moe_layer_freq` has 2 entries, expected one for each of 5 layers",
    ),
    ("deepseek_v32", {"layer_types": ["full_attention"] * 5}, "`layer_types[0]` is `full_attention`; known: `indexed_"),
    ("deepseek_v32", {"q_lora_rank": None}, "`q_lora_rank` is null, expected an integer"),
    ("glm_moe_dsa", {"indexer_types": ["shared"] * 5}, "`indexer_types[0]` is `shared`, expected `full`: there is no"),
    ("glm_moe_dsa", {"index_topk_pattern": "FFXFF"}, "`index_topk_pattern[2]` is `X`; known: `F` (full), `S` (shared)"),
    ("glm_moe_dsa", {"index_topk_pattern": "FF"}, "`index_topk_pattern` has 2 entries and `num_hidden_layers` is 5"),
    (
        "glm_moe_dsa",
        {"indexer_types": ["full"] * 5, "index_topk_freq": 4},
        "`indexer_types[2]` is `full` and `index_topk_freq` is 4, expected that they agree",
    ),
    ("axk1", {"head_dim": 8}, "`head_dim` is 8, expected 4 or 9 or 13 or 16: a part of a latent head, or its latent"),
    ("dots3_note_text", {"swa_head_dim": 250}, "layer 2 has 64 heads, 256 wide by parts; its `num_key_value_heads` is"),
    (
        "dots3_note_text",
        {"per_layer_config": {"5": {"kv_lora_rank": 64}}},
        "`per_layer_config.5` names no layer, expected an index from 0 to 4",
    ),
    ("dots3_note_text", {"per_layer_config": {"x": {}}}, "`per_layer_config.x` names no layer, expected an index from"),
    (
        "dots3_note_text",
        {"per_layer_config": {"0": {"num_attention_heads": 2}}},
        "layer 0 has 2 heads, 13 wide by",
    ),
    (
        "dots3_note_text",
        {"head_dim": 13, "per_layer_config": {"0": {"index_topk": 5}}},
        "`per_layer_config.0.index_topk` is 5, which bears on the cache or the work and is not read",
    ),
]


@pytest.mark.parametrize(("family", "changes", "message"), REFUSED)
def test_what_contradicts_itself_is_refused(family: str, changes: dict[str, Any], message: str) -> None:
    known = SIZES if family in ("deepseek_v32", "glm_moe_dsa", "dots3_note_text") else dict(list(SIZES.items())[:-3])
    with pytest.raises(InputError) as refusal:
        read_config({"model_type": family, **known, **changes})
    assert str(refusal.value).startswith(f"config: {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compress_ratios": [0, 4]}, "`compress_ratios` has 2 entries and `num_hidden_layers` is 3, expected one for"),
        ({"compress_ratios": [0, 8, 4]}, "`compress_ratios[1]` is 8; known: 0, 4, 128"),
        ({"layer_types": ["full_attention"] * 3}, "`layer_types[0]` is `full_attention`; known: `sliding_attention`"),
        ({"num_key_value_heads": 2}, "`num_key_value_heads` is 2, expected 1: all heads share one key"),
        ({"o_groups": 4}, "`o_groups` is 4 and `num_heads` 6, expected whole groups"),
    ],
)
def test_deepseek_v4_that_is_not_known_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_config({"model_type": "deepseek_v4", **V4, **changes})
    assert str(refusal.value).startswith(f"config: {message}")


def test_facts_say_what_does_not_enter() -> None:
    said = {
        "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 3,
        "first_k_dense_replace": 4,
        "num_nextn_predict_layers": 1,
    }
    _, facts = read_facts({"model_type": "glm_moe_dsa", **SIZES, **said})
    notes = {fact.name: fact.note for fact in facts if fact.note}
    assert notes["first_k_dense_replace"] == "mlp_layer_types says which layers have experts"
    assert notes["num_nextn_predict_layers"] == "draft layers, not counted"


FILES = [
    "deepseek-ai--DeepSeek-V3", "deepseek-ai--DeepSeek-R1", "deepseek-ai--DeepSeek-V3.2",
    "deepseek-ai--DeepSeek-V4-Flash", "deepseek-ai--DeepSeek-V4-Pro", "moonshotai--Kimi-K2.5",
    "nvidia--Kimi-K2.5-NVFP4", "zai-org--GLM-5", "zai-org--GLM-5.1", "zai-org--GLM-5.2",
]  # fmt: skip


@needs_shared
@pytest.mark.parametrize("name", FILES)
def test_real_files_hold_what_was_published(name: str) -> None:
    sizes = json.loads((SHARED / "sizes_32768_bf16.json").read_text())
    config = json.loads((SHARED / "configs" / f"{name}.json").read_text())
    assert 2 * read_config(config).held(32768) == sizes[name]


@needs_shared
@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("deepseek-ai--DeepSeek-V3.2", 9_790_633_803_776),
        ("zai-org--GLM-5.2", 10_489_411_141_632),
        # Here the index scores of a key, weighted and summed over heads, are no product of matrices, and not traced.
        ("deepseek-ai--DeepSeek-V4-Flash", 3_608_829_493_248),
    ],
)
def test_real_files_cost_what_was_traced(name: str, macs: int) -> None:
    """256 tokens, all logits, traced on the meta device with transformers 5.24."""
    decoder = read_config(json.loads((SHARED / "configs" / f"{name}.json").read_text()))
    tally = count(decoder, [Pass(new=256, logits=256)], kernel="dense")
    unseen = tally.by("term").get(Term.index_sum, 0) if "V4" in name else 0
    assert tally.total - unseen == macs


@pytest.mark.parametrize("family", sorted({*FAMILIES, "deepseek_v4"} - {"kimi_k2", "kimi_k25", "deepseek_v2"}))
def test_a_config_class_with_its_defaults_reads_like_an_empty_file(family: str) -> None:
    auto = pytest.importorskip("transformers").AutoConfig
    written = json.loads(auto.for_model(family).to_json_string(use_diff=False))
    assert read_config(written) == read_config({"model_type": family})
