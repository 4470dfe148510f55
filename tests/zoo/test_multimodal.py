"""Models that read more than text, as wide as their classes on the meta device: text through the whole model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING

from kvtally import cached, compare, count, uncached
from kvtally.live import as_run, build, check, trace
from kvtally.live.zoo import scaled
from kvtally.live.zoo_row import unseen
from kvtally.live.zoo_shrink import shrunk_config
from kvtally.pure.config import read_config
from kvtally.pure.config_multimodal import DECODERS

# What a class leaves open, or gets wrong, by default.
_TURN = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
TEXT: dict[str, dict[str, Any]] = {
    **{name: {"rope_parameters": _TURN} for name in ("glm46v", "glm4v", "glmga")},
    "inkling2_loop": {"num_hidden_layers": 18},  # it loops over 6 to 17
    **{name: {"head_dim": 128} for name in ("glm4v_moe", "qwen3_omni_moe_thinker")},
}
GIVEN = {"aya_vision": {"vision_config": {"model_type": "siglip_vision_model", "num_attention_heads": 16}}}
DEEP = ("exaone4_5", "fun_asr_nano", "nemotron_h_omni")  # whose classes do not take a part of a text's config
LAYERS = 6
DTYPES = dict.fromkeys(("nemo_speechlm", "nemotron_h_omni"), "bfloat16")  # whose experts multiply in that alone


@pytest.mark.parametrize("name", DECODERS)
def test_text_through_the_whole_model_costs_what_its_decoder_costs(name: str) -> None:
    text = ({} if name in DEEP else {"num_hidden_layers": LAYERS}) | TEXT.get(name, {})
    config = CONFIG_MAPPING[name](**({"text_config": text} if text else {}), **GIVEN.get(name, {})).to_dict()
    decoder, model = read_config(config), build(config, attention="eager", dtype=DTYPES.get(name))
    for passes in (cached(13, 3), uncached(9, 2)):
        found = compare(count(decoder, as_run(model, passes), kernel="dense"), trace(model, passes, decoder))
        differences, _ = unseen(found.differences)
        assert found.cells > 20 and differences == [], found


def test_positions_of_three_kinds_share_the_channels_of_a_small_head() -> None:
    turn = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    config = CONFIG_MAPPING["qwen2_5_vl"](text_config={"rope_parameters": turn, "num_hidden_layers": 4})
    small = shrunk_config(config)
    assert small.text_config.rope_parameters["mrope_section"] == [2, 3, 3]  # of 96 / 6 = 16, half of it turns
    found = check(scaled(build(small, device="cpu")), scenarios="steps")
    assert found.verdict in ("same", "rounding")
