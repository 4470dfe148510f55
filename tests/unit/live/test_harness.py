"""Passes run on a model as asked, and the model is left as it was found."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import kvtally
from handwritten import VOCAB, Net, calls
from kvtally import Pass
from kvtally.live import as_run, build, run, trace
from kvtally.live.harness import Convention, convention, steps, token_ids
from tiny import FAMILIES, SOURCE, model

# float32 keeps about seven digits; two orders below is what sums over a few dozen numbers lose at most.
ROUNDING = 1e-5


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).abs().max() <= ROUNDING * max(1.0, float(b.abs().max())))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt2", "deepseek_v3", "whisper", "t5"])
def test_every_list_ends_on_the_logits_of_one_plain_pass_over_all_of_it(family: str) -> None:
    real = model(family, "sdpa")
    source = SOURCE if real.config.is_encoder_decoder else None
    (plain,) = run(real, [Pass(new=11, keep=False)], source=source)
    for passes in (
        kvtally.cached(8, 4),
        kvtally.chunked(9, 3, 4),
        kvtally.edited(10, 7, 2),
        kvtally.uncached(9, 3),
        (Pass(new=11), Pass(new=2, past=9)),  # back to a past that a window has dropped
        (Pass(new=2, past=8, keep=False, times=2),),
    ):
        logits = run(real, passes, source=source)
        assert close(logits[-1][:, -1], plain[:, -1]), passes
        assert len(logits) == sum(p.times for p in passes)


def test_rows_of_logits_are_those_asked_for_and_none_means_none() -> None:
    passes = (Pass(new=5, logits=0), Pass(new=4, past=5, logits=3), Pass(new=2, past=9, logits=2))
    assert [logits.shape[1] for logits in run(model("llama", "sdpa"), passes)] == [0, 3, 2]


def test_as_run_says_how_many_rows_a_model_makes_that_cannot_be_asked_for_fewer() -> None:
    passes = (*kvtally.cached(5, 3), *kvtally.uncached(4, 3))
    assert as_run(model("llama", "sdpa"), passes) == passes
    real = model("whisper", "sdpa")
    asked = as_run(real, passes)
    assert [(p.new, p.logits, p.times) for p in asked] == [(5, 5, 1), (1, 1, 2), (4, 4, 1), (5, 5, 1), (6, 6, 1)]
    rows = [logits.shape[1] for logits in run(real, passes, source=SOURCE)]
    assert rows == [p.logits for many in asked for p in many.each()]


def test_a_cache_goes_on_where_it_ended_and_is_made_anew_for_any_other_past() -> None:
    real = model("mistral", "sdpa")
    asked = [Pass(new=7), Pass(new=1, past=7), Pass(new=2, past=3), Pass(new=2, keep=False), Pass(new=1, past=4)]
    caches, lengths = [], []
    with torch.no_grad():
        for step in steps(convention(real), asked):
            caches.append(step.cache)
            lengths.append(step.cache.get_seq_length() if step.cache else None)
            step.run()
    assert lengths == [0, 7, 3, None, 4]
    assert caches[0] is caches[1]
    assert len({id(cache) for cache in caches}) == 4


def snapshot(real: Any) -> tuple[Any, ...]:
    modules = [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks), sorted(vars(m))) for m in real.modules()]
    weights = [(p.dtype, p.requires_grad, p.grad, p.detach().clone().tolist()) for p in real.parameters()]
    state = torch.get_rng_state().tolist(), torch.is_grad_enabled(), torch.get_default_dtype()
    return modules, weights, state, real.config.to_dict(), real.config._attn_implementation


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_and_the_random_state_are_left_as_they_were_found(fails: bool) -> None:
    tiny = FAMILIES["mixtral"]
    real = build({**tiny.config, "attention_dropout": 0.5}, device="cpu", attention="eager")
    real.train()
    real.model.layers[1].eval()
    real.lm_head.weight.requires_grad_(False)
    torch.manual_seed(3)
    before = snapshot(real)
    passes = [Pass(new=4), Pass(new=2, past=4, attending=1 if fails else None)]
    for verb in (lambda: run(real, passes), lambda: trace(real, passes, tiny.decoder)):
        if fails:
            with pytest.raises(kvtally.InputError):
                verb()
        else:
            verb()
        assert snapshot(real) == before


def test_a_failure_inside_the_model_leaves_nothing_behind() -> None:
    real = build(FAMILIES["gpt2"].config, device="cpu")
    before = snapshot(real)
    with pytest.raises(IndexError):  # it has 64 positions
        trace(real, [Pass(new=3), Pass(new=99, past=3)], FAMILIES["gpt2"].decoder)
    assert snapshot(real) == before


def test_building_leaves_the_random_state_and_the_config_alone() -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(**{k: v for k, v in FAMILIES["llama"].config.items() if k != "model_type"})
    state, facts = torch.get_rng_state(), config.to_dict()
    first, second = (build(config, device="cpu", attention="eager", dtype="float64") for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert config.to_dict() == facts
    assert torch.equal(first.lm_head.weight, second.lm_head.weight)  # random, and the same every time
    assert first.dtype == torch.float64
    assert not first.training


class Older(nn.Module):
    """A model as transformers called them before: the cache is `past_key_values`."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.real, self.config, self.device, self.dtype = real, real.config, real.device, real.dtype

    def forward(
        self, input_ids: Any, past_key_values: Any = None, use_cache: Any = None, logits_to_keep: Any = 0
    ) -> Any:
        return self.real(input_ids, cache=past_key_values, use_cache=use_cache, logits_to_keep=logits_to_keep)


def test_the_older_keyword_of_the_cache_is_known() -> None:
    real, decoder, passes = model("qwen3", "sdpa"), FAMILIES["qwen3"].decoder, kvtally.cached(6, 3)
    older = Older(real)
    assert all(torch.equal(a, b) for a, b in zip(run(older, passes), run(real, passes), strict=True))
    assert kvtally.compare(trace(older, passes, decoder), trace(real, passes, decoder)).agree


def test_run_takes_a_calling_convention() -> None:
    net = Net()
    cached, plain = (run(net, p, calls=calls(net)) for p in (kvtally.cached(7, 3), [Pass(new=9, keep=False)]))
    assert close(cached[-1], plain[-1])
    assert as_run(net, kvtally.cached(7, 3), calls=calls(net)) == kvtally.cached(7, 3)


def test_token_ids_are_fixed_ordinary_and_all_used() -> None:
    ids = token_ids(VOCAB, special=[0, 3, VOCAB - 1])
    assert torch.equal(ids(500), ids(500))
    assert torch.equal(ids(500)[:, :9], ids(500)[:, :9])
    assert set(ids(500)[0].tolist()) == set(range(VOCAB)) - {0, 3, VOCAB - 1}
    fed: list[int] = []
    real = model("whisper", "sdpa")
    whole = convention(real, source=SOURCE)
    run(real, [Pass(new=60)], calls=spying(whole, fed), source=SOURCE)
    assert not {0, 1, 2} & set(fed)  # its padding, start and end
    assert len(fed) == 60


def spying(calls: Convention, fed: list[int]) -> Convention:
    def call(cache: Any, ids: Any, p: Pass) -> Any:
        fed.extend(ids[0].tolist())
        return calls.call(cache, ids, p)

    return Convention(fresh=calls.fresh, call=call, ids=calls.ids)


def test_what_cannot_be_run_is_refused_with_what_to_do() -> None:
    with pytest.raises(kvtally.InputError, match=r"`attending` is 1.*\n\nhint: use loop=\"forward\""):
        run(model("llama", "sdpa"), kvtally.uncached(4, 2, loop="lesson"))
    with pytest.raises(kvtally.InputError, match=r"`source` is None.*\n\nhint: pass source="):
        run(model("t5", "sdpa"), [Pass(new=3)])
    with pytest.raises(kvtally.InputError, match=r"Linear\.forward takes input, expected a cache.*\n\nhint: say how"):
        run(nn.Linear(3, 5), [Pass(new=3)])
    with pytest.raises(kvtally.InputError, match=r"gemma2: ValueError: Gemma2.* not support.*eager"):
        build(FAMILIES["gemma2"].config, attention="sdpa")
    with pytest.raises(kvtally.InputError, match=r"`model_type` is 'mega'"):
        build({"model_type": "mega"})
    with pytest.raises(kvtally.InputError, match=r"every token is special"):
        token_ids(2, special=[0, 1])


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_extra_is_one_line_and_a_hint(missing: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
import kvtally
try:
    import kvtally.live
except kvtally.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ("`kvtally.live` runs a real model and needs PyTorch\n\nhint: pip install 'kvtally[hf]'\n")
