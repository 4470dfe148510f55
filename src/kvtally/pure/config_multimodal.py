"""Models that read images or sound beside text: the decoder in their config, of a family that is read by itself.

What is counted is text alone: the tower that turns an image into tokens is not, and each of those is one token more of
the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvtally.core.decoder import Decoder
from kvtally.pure.config_dense import FAMILIES as DENSE
from kvtally.pure.config_experts import FAMILIES as EXPERTS
from kvtally.pure.config_fields import Fields
from kvtally.pure.config_latent import FAMILIES as LATENT
from kvtally.pure.config_window import FAMILIES as SLIDING

Rule = Callable[[Fields], Decoder]

# By model_type: that of the decoder where `text_config` does not say another.
DECODERS = {
    "apertus1p5": "apertus1p5_text", "aria": "aria_text", "aya_vision": "cohere2",
    "cohere2_vision": "cohere2", "cosmos3_omni": "qwen3_vl_text", "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama", "exaone4_5": "exaone4", "fun_asr_nano": "qwen3",
    "glm46v": "glm4v_text", "glm4v": "glm4v_text", "glm4v_moe": "glm4v_moe_text", "glm_ocr": "glm_ocr_text",
    "glmasr": "llama", "glmga": "glm4v_text", "granite_docling": "granite_docling_text", "granite_speech": "granite",
    "granite_speech_plus": "granite", "hy_v4_vl": "hy_v4_vl_text", "hyperclovax_vision_v2": "hyperclovax",
    "idefics2": "mistral", "idefics3": "llama", "inkling2": "inkling2_text", "inkling2_loop": "inkling2_loop_text",
    "inkling_mm_model": "inkling_text", "internvl": "qwen2", "lfm2_vl": "lfm2", "lfm3_vl": "lfm3",
    "lighton_ocr": "qwen3", "llava": "llama", "llava_next": "llama", "llava_next_video": "llama",
    "llava_onevision": "qwen2", "minicpm_ocr": "qwen3_5_text", "minicpmv4_6": "qwen3_5_text",
    "minicpmv4_7": "qwen3_5_text", "mistral3": "mistral", "nemo_speechlm": "nemotron_h",
    "nemotron_h_omni": "nemotron_h", "omniasr": "llama", "ovis2": "qwen2", "paddleocr_vl": "paddleocr_vl_text",
    "paligemma": "gemma", "pp_chart2table": "qwen2", "qianfan_ocr": "qwen3",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text", "qwen3_asr": "qwen3", "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "shieldgemma2": "gemma3_text", "smolvlm": "llama", "vibevoice_asr": "qwen2",
    "video_llama_3": "qwen2", "video_llava": "llama", "vipllava": "llama", "voxtral": "llama",
}  # fmt: skip
FLAT = ("qwen2_vl", "qwen2_5_vl")  # whose published configs have the decoder's fields beside `vision_config`
TOWER = (
    "acoustic_tokenizer_chunk_size", "alignment_intermediate_size", "projector_hidden_size", "seconds_per_chunk",
    "vision_hidden_size", "window_size",
)  # fmt: skip
# Decoders that have a model_type of their own here, and the layers of another family.
TEXT: dict[str, Rule] = {
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text"), SLIDING["qwen2"]),
    **dict.fromkeys(("granite_docling_text", "glm4v_text", "glm_ocr_text", "paddleocr_vl_text"), DENSE["llama"]),
    "qwen3_omni_moe_text": EXPERTS["qwen3_vl_moe_text"],
    "glm4v_moe_text": EXPERTS["glm4_moe"],
    "hy_v4_vl_text": LATENT["hy_v4"],
    "mistral4": LATENT["deepseek_v3"],
}


def families(readers: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rule of each of these models, given those of every decoder."""

    def rule(f: Fields) -> Decoder:
        own = DECODERS[f.model_type]
        if f.model_type in FLAT and not f.has("text_config"):
            return readers[own](f.seen_as(own))
        inner = f.nested("text_config", own, *readers)
        decoder = readers[inner.model_type](inner)
        f.set_aside("hidden_size", "vocab_size", note="text_config says the decoder's")
        f.set_aside(*TOWER, note="of the tower, or of what joins it to the text")
        return decoder

    return dict.fromkeys(DECODERS, rule)
