"""`check`: healthy models are not called broken, sick ones are, and what cannot be said is not said."""

from __future__ import annotations

import gc
import json
import weakref
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvtally.core.agreement import CacheDefectError, Report
from kvtally.core.errors import InputError, KvtallyError
from kvtally.live import build, check
from kvtally.live.adapter import of_transformers
from kvtally.live.scenarios import SILENT_CROP, Bench, cut
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk

KNOWN = "generate on a carried cache"  # of a purely recurrent cache: generate gives it the whole text again


def tiny(name: str, dtype: Any = torch.float32) -> Any:
    """A model of its own for each test: the tests plant hooks."""
    return scaled(build(shrunk(name), device="cpu")).to(dtype)


@cache
def report(name: str) -> Report:
    return check(tiny(name))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text", "mixtral", "deepseek_v3", "mamba2", "bart"])
def test_a_healthy_model_has_no_defect_but_the_known_ones_of_transformers(name: str) -> None:
    found = [a.text for a in report(name).defects if SILENT_CROP not in a.note and a.scenario != KNOWN]
    assert found == []
    assert report(name).by_group()["steps"] == "rounding"


@pytest.mark.parametrize("name", ["qwen3_next", "gemma3n_text"])
def test_a_slow_healthy_model_has_no_defect_in_the_scenarios_that_show_most(name: str) -> None:
    asked = ["ragged chunks", "prefill, then steps", "reorder", "stored prefix", "chunked prefill, explicit positions"]
    found = check(tiny(name), scenarios=asked)
    assert found.defects == ()
    assert sum(a.verdict == "rounding" for a in found.agreements) >= len(asked)


@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3"])
def test_these_pass_whole(name: str) -> None:
    assert report(name).verdict == "rounding"
    assert report(name).good
    report(name).raise_if_defect()


def test_windows_are_passed() -> None:
    windows = [a for a in report("gemma3_text").agreements if a.group == "window"]
    assert {a.verdict for a in windows} <= {"same", "rounding"}
    assert min(len(a.steps) for a in windows) == 24  # the window is 5


def test_a_crop_that_the_cache_itself_cannot_do_is_named() -> None:
    assert {a.scenario for a in report("gemma3_text").defects if SILENT_CROP in a.note} == {
        "static crop",
        "edit in the middle, static",
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_sixteen_bits_are_no_defect(name: str, dtype: Any) -> None:
    found = check(tiny(name, dtype), scenarios="steps,padding")
    assert found.verdict == "rounding"
    chunks = next(a for a in found.agreements if a.scenario == "chunks of 3")
    assert chunks.precision == "float64"
    assert chunks.error < 1e-12  # float64 rounding of a few layers; 16 bits are 1e-3
    assert chunks.native is not None
    assert chunks.native > 1e-4


def one_too_far(model: Any) -> Any:
    """The model with the position ids of every cached call one too high."""

    def shift(_model: Any, args: Any, given: Any) -> Any:
        held, ids = given.get("cache"), given.get("input_ids")
        past = int(held.get_seq_length()) if held is not None else 0
        if past:
            given["position_ids"] = torch.arange(past + 1, past + 1 + ids.shape[1])[None].expand(ids.shape)
        return args, given

    model.register_forward_pre_hook(shift, with_kwargs=True)
    return model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_off_by_one_among_experts_is_a_defect_in_16_bits(dtype: Any) -> None:
    healthy, sick = tiny("mixtral", dtype), one_too_far(tiny("mixtral", dtype))
    found = [check(model, scenarios=["ragged chunks", "reorder"]).by_group() for model in (healthy, sick)]
    assert [(groups["steps"], groups["batch"]) for groups in found] == [("rounding",) * 2, ("DEFECT",) * 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_off_by_one_position_is_a_defect_in_every_precision(dtype: Any) -> None:
    found = check(one_too_far(tiny("llama", dtype)), scenarios="steps")
    assert found.by_group()["steps"] == "DEFECT"
    steps = next(a for a in found.agreements if a.scenario == "prefill, then steps")
    assert steps.first is not None
    assert steps.first.position == 9  # the prompt has 3/8 of 24 tokens
    assert "layer 0" in steps.where
    with pytest.raises(CacheDefectError, match="DEFECT"):
        found.raise_if_defect()


def test_a_cache_that_stores_less_is_lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.cache_utils import DynamicLayer

    update = DynamicLayer.update

    def rounded(self: Any, keys: Any, values: Any, *args: Any, **more: Any) -> Any:
        return update(self, keys.to(torch.bfloat16).to(keys.dtype), values, *args, **more)

    monkeypatch.setattr(DynamicLayer, "update", rounded)
    found = check(tiny("llama"), scenarios="steps")
    assert found.verdict == "LOSSY"
    assert not found.good
    steps = next(a for a in found.defects if a.scenario == "prefill, then steps")
    assert (steps.error, steps.precision) == (steps.native, "float32")  # float64 would show rounding of its own
    assert steps.error > 1e-4  # half an ulp of bfloat16 is 2e-3 of a key
    assert f"LOSSY, error {steps.error:.2g} in float32, first at position" in steps.text


def in_16_bits(numbers: Any) -> Any:
    return numbers.to(torch.bfloat16).to(numbers.dtype)


def test_a_cache_that_stores_less_after_the_prompt_is_lossy_and_its_part_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.cache_utils import DynamicLayer

    update = DynamicLayer.update

    def rounded(self: Any, keys: Any, values: Any, *args: Any, **more: Any) -> Any:
        return update(self, keys, in_16_bits(values) if keys.shape[2] == 1 else values, *args, **more)

    monkeypatch.setattr(DynamicLayer, "update", rounded)
    found = check(tiny("llama"), scenarios=["prefill, then steps"])
    assert [a.scenario for a in found.agreements if a.verdict == "LOSSY"] == ["prefill, then steps"]
    assert "the values of layer 0 hold no more than bfloat16 does" in found.agreements[-1].where


def test_a_step_that_computes_in_less_is_no_lossy_cache() -> None:
    """What is stored is whole: the noise of a step alone is rounding, be it twenty times that of a pass."""
    model = tiny("llama")
    last = model.model.layers[-1].self_attn.o_proj
    last.register_forward_hook(lambda _module, _inputs, out: in_16_bits(out) if out.shape[1] == 1 else out)
    found = check(model, scenarios=["prefill, then steps"]).agreements[-1]
    assert found.native is not None
    assert found.native > 2e-5
    assert found.verdict == "rounding"


def test_weights_of_zero_make_the_check_blind() -> None:
    model = tiny("llama")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert check(model, scenarios="steps").verdict == "blind"


def test_a_pass_that_is_not_repeatable_cannot_be_compared() -> None:
    model = tiny("llama")
    model.lm_head.register_forward_hook(lambda _m, _i, out: out + torch.randn_like(out) / 100)
    found = check(model, scenarios="steps")
    assert found.verdict == "not comparable"
    assert "not deterministic" in found.sentence
    assert set(found.by_group().values()) == {"not comparable"}


def test_a_pass_that_is_not_causal_cannot_be_cached() -> None:
    model = tiny("llama")
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
        layer.self_attn.register_forward_pre_hook(
            lambda _m, args, given: (args, given | {"attention_mask": None}), with_kwargs=True
        )
    found = check(model, scenarios="steps")
    assert found.verdict == "not comparable"
    assert "not causal: this model cannot be cached" in found.sentence


def test_nan_is_named_with_module_and_position() -> None:
    model = tiny("llama")
    model.model.layers[1].mlp.down_proj.weight.data[3, 3] = torch.nan
    found = check(model, scenarios="steps")
    assert found.verdict == "not comparable"
    assert "NaN from position 0 on, first out of `model.layers.1.mlp.down_proj`" in found.sentence


def test_memory_is_given_back() -> None:
    """As many tensors live after a check as before, and none of them is one that the check made."""
    model = tiny("gpt2")
    made: list[weakref.ref[Any]] = []
    model.lm_head.register_forward_hook(lambda _m, _i, out: made.append(weakref.ref(out)))
    check(model, scenarios="reorder", tokens=8)  # what is loaded with a first use stays
    gc.collect()
    before = living()
    made.clear()
    report = check(model, scenarios=["reorder", "static crop", "generate, static cache"], tokens=8)
    gc.collect()
    assert len(made) > 20
    assert [one() for one in made if one() is not None] == []
    assert living() == before
    assert report.good


def living() -> int:
    """Bytes of all tensors that Python still knows of."""
    tensors = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
    return sum(t.untyped_storage().nbytes() for t in tensors)


def test_a_tolerance_of_ones_own_decides() -> None:
    model = one_too_far(tiny("llama"))
    error = next(a for a in check(model, scenarios="chunks of 3").defects).error
    above, below = (check(model, scenarios="chunks of 3", tolerance=error * k) for k in (1.01, 0.99))
    assert above.by_group()["steps"] == "rounding"
    assert below.by_group()["steps"] == "DEFECT"
    assert next(a for a in below.defects).threshold == error * 0.99
    assert above.conventions["threshold"] == f"{error * 1.01:g} of the logits' scale, in true float64"


def test_a_screen_of_ones_own_decides_what_runs_again() -> None:
    model, ran = tiny("gpt2"), {}
    for factor in (None, 0, 1e6):
        found = check(model, scenarios="chunks of 3", screen=factor)
        ran[factor] = {a.precision for a in found.agreements if a.group == "steps"}
    assert ran == {None: {"float32"}, 0: {"float64"}, 1e6: {"float32"}}
    assert check(model.bfloat16(), scenarios="chunks of 3", screen=20).agreements[-1].precision == "bfloat16"


def test_a_tolerance_below_that_of_float32_runs_everything_again() -> None:
    found = check(tiny("gpt2"), scenarios="chunks of 3", tolerance=1e-10)
    assert found.agreements[-1].precision == "float64"
    assert found.good


def test_a_vocabulary_of_one_is_blind() -> None:
    config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    one = config | {"intermediate_size": 12, "vocab_size": 1, "bos_token_id": None, "eos_token_id": None}
    found = check(build(one, device="cpu"), scenarios="steps")
    assert found.verdict == "blind"
    assert "vocabulary of one" in found.sentence


def test_a_model_without_a_cache_has_nothing_to_check() -> None:
    found = check(tiny("openai-gpt"), scenarios="steps,static,edit,batch")
    assert found.verdict == "unsupported"
    assert not found.good
    assert {a.note for a in found.agreements if a.group == "steps"} == {"the model takes no cache"}


def test_a_refusal_is_told_in_its_own_words_with_file_and_line() -> None:
    refused = next(a for a in report("gemma3_text").agreements if a.scenario == "crop beyond a window")
    assert refused.verdict == "unsupported"
    assert "Call `activate_past_recording` before `crop`" in refused.note
    assert "transformers/cache_utils.py:" in refused.note


def test_a_model_that_ignores_the_mask_is_found_by_padding() -> None:
    model = tiny("llama")
    model.register_forward_pre_hook(
        lambda _m, args, given: (args, {k: v for k, v in given.items() if k != "attention_mask"}), with_kwargs=True
    )
    found = check(model, scenarios="padding,steps")
    assert found.by_group()["padding"] == "DEFECT"
    assert found.by_group()["steps"] == "rounding"


def test_the_model_is_left_as_it_was_found() -> None:
    model = tiny("mixtral").train()
    model.model.layers[0].eval()
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    model.lm_head.weight.requires_grad_(False)
    model.model.embed_tokens.weight.register_hook(lambda grad: grad)

    def state() -> dict[str, Any]:
        return {
            "tensors": {n: (t.data_ptr(), t.dtype, t.requires_grad) for n, t in model.named_parameters()},
            "buffers": {n: (t.data_ptr(), t.dtype) for n, t in model.named_buffers()},
            "modes": [m.training for m in model.modules()],
            "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
            "grads": model.lm_head.weight.grad.sum().item(),
            "config": json.dumps(model.config.to_dict(), default=str, sort_keys=True),
            "generation": json.dumps(model.generation_config.to_dict(), default=str, sort_keys=True),
            "kernels": (model.config._attn_implementation, model.config._experts_implementation),
            "names": [sorted(vars(m)) for m in model.modules()],
            "random": torch.random.get_rng_state().tolist(),
            "default": torch.get_default_dtype(),
            "grad on": torch.is_grad_enabled(),
        }

    before = state()
    check(model, scenarios=["prefill, then steps", "generate, static cache"])
    assert state() == before


def test_the_same_seed_gives_the_same_report_and_another_one_other_tokens() -> None:
    model = tiny("gpt2")
    first, again, other = (check(model, scenarios="steps", seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.agreements != other.agreements


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": 3}, "`tokens` is 3, expected an integer of at least 8"),
        ({"scenarios": "step"}, "`scenarios` has 'step'; known: `all`, `power`, `steps`"),
        ({"tolerance": 0.0}, "`tolerance` is 0, expected a number above 0 and below 1"),
        ({"tolerance": "1e-3"}, "`tolerance` is '1e-3', expected a number above 0 and below 1"),
        ({"screen": -2.0}, "`screen` is -2, expected a number of at least 0"),
        ({"dtype": "int8"}, "`dtype` is 'int8'; known: `bfloat16`, `float16`, `float32`, `float64`"),
        ({"seed": -1}, "`seed` is -1"),
        ({"seed": 2**80}, "expected an integer of at least 0 and at most 1,000,000,000,000"),
        ({"tokens": 10**12}, "`tokens` is 1,000,000,000,000, expected an integer of at least 8 and at most 1,000,000"),
        ({"ids": [[1, 2, 3, 4, 5, 6, 7, 8]], "tokens": 9}, "`tokens` is 9 and `ids` has 8"),
    ],
)
def test_wrong_questions_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        check(tiny("gpt2"), **given)
    assert said in str(caught.value)


def test_an_encoder_and_other_things_are_refused() -> None:
    from transformers import BertConfig, BertModel

    own = torch.nn.Linear(2, 3)
    own.config = SimpleNamespace(vocab_size=3)  # as models of one's own have
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 30}
    for model, said in (
        (BertModel(BertConfig(vocab_size=50, **sizes)), "an encoder has no cache"),
        ("gpt2", "`model` is a str, expected a transformers model\n\nhint: say how your own model is called"),
        (own, "`model` is a Linear, expected a transformers model"),
    ):
        with pytest.raises(KvtallyError) as caught:
            check(model)
        assert said in str(caught.value)


def test_every_scenario_of_a_tiny_model_covers_the_prompt_once() -> None:
    for a in report("llama").agreements:
        if a.group in ("steps", "static"):
            whole = 9 + 4 + 5 if a.scenario == "explicit position ids" else 24
            assert [s.position for s in a.steps] == list(range(whole)), a.scenario


def test_prompts_share_no_position() -> None:
    bench = Bench(adapter=of_transformers(tiny("gpt2")), tokens=40)
    assert not (bench.prompt(0) == bench.prompt(1)).any()
    assert not (bench.prompt(0) == bench.prompt(5)).any()


def test_sizes_fill_what_they_are_cut_to() -> None:
    for total in range(1, 30):
        for sizes in ([5, 1, 1, 7, 2, 1, 4, 3], [3] * 9, [total + 4], []):
            assert sum(cut(sizes, total)) == total
            assert min(cut(sizes, total)) > 0


def test_explicit_positions_begin_where_the_model_itself_begins() -> None:
    settings = {
        "model_type": "roberta", "is_decoder": True, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 50, "max_position_embeddings": 40, "pad_token_id": 1,
    }  # fmt: skip
    model = scaled(build(settings, device="cpu"))
    assert of_transformers(model).first == 2, "the row of the padding is 1"
    report = check(model, scenarios=["explicit position ids", "full pass, explicit positions"], tokens=9)
    assert {a.verdict for a in report.agreements} <= {"same", "rounding"}, report.sentence
