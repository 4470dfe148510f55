"""Closed = traced in every cell, on tiny real models of every family; what it sees, and names, when they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import kvtally
from fetch_smollm2 import weights
from handwritten import DECODER, HIDDEN, Net, calls
from kvtally import Attention, Decoder, Layer, Mlp, Pass, Term
from kvtally.core.tally import NOT_COUNTED
from kvtally.live import as_run, build, trace
from tiny import FALCON_NEW, FAMILIES, model, two

# All of them go past the window of 5 that some layers have, in one pass and over several.
LISTS = {
    "uncached": kvtally.uncached(9, 3),
    "cached": kvtally.cached(9, 4),
    "cached from a start token": kvtally.cached(1, 8),
    "chunked": kvtally.chunked(11, 3, 4),
    "edited": kvtally.edited(12, 7, 3),
    "conversation carried": kvtally.conversation([(6, 3), (4, 3)], carried=True),
    "conversation resent": kvtally.conversation([(6, 3), (4, 3)], carried=False),
    "no logits, all logits": (Pass(new=7, logits=0), Pass(new=3, past=7, logits=3)),
    "a past that is not kept": (Pass(new=2, past=6, keep=False, times=2),),
}
MODELS = [(name, kind, moe) for name, tiny in FAMILIES.items() for kind in tiny.kinds for moe in tiny.experts]


@pytest.mark.parametrize(("family", "attention", "experts"), MODELS)
def test_closed_equals_traced_in_every_cell(family: str, attention: str, experts: str | None) -> None:
    real, decoder = model(family, attention, experts), FAMILIES[family].decoder
    for name, passes in LISTS.items():
        asked = as_run(real, passes)
        traced = trace(real, asked, decoder)
        found = kvtally.compare(kvtally.count(decoder, asked, kernel="dense"), traced)
        assert found.agree, f"{name}: {found}"
        assert traced.uncounted == NOT_COUNTED  # everything that was seen has a term


def test_attention_and_experts_on_a_cpu_are_counted() -> None:
    """What torch.utils.flop_counter leaves out there: flash attention of the CPU, grouped experts."""
    traced = trace(model("mixtral", "sdpa", "grouped_mm"), [Pass(new=6)], FAMILIES["mixtral"].decoder)
    assert traced.macs["prefill", 1, Term.qk] == 4 * 10 * 6 * 6
    assert traced.macs["prefill", 1, Term.pv] == 4 * 10 * 6 * 6
    assert traced.macs["prefill", 1, Term.gate_proj] == 6 * 2 * 24 * 20
    assert traced.macs["prefill", 1, Term.down_proj] == 6 * 2 * 24 * 20


def test_falcon_of_the_new_kind_stores_each_key_and_value_once_for_each_query_head() -> None:
    real, passes = model("falcon_new", "sdpa"), kvtally.cached(6, 3)
    closed = kvtally.count(FALCON_NEW.decoder, passes, kernel="dense")
    found = kvtally.compare(closed, trace(real, passes, FALCON_NEW.decoder))
    assert {d.table for d in found.differences} == {"kv"}
    assert len(found.differences) == len(closed.kv)
    assert all(d.right == 2 * d.left for d in found.differences)  # 4 query heads over 2 KV heads


def test_a_decoder_written_by_hand_is_traced_by_its_calling_convention() -> None:
    net = Net()
    for passes in LISTS.values():
        found = kvtally.compare(
            kvtally.count(DECODER, passes, kernel="dense"), trace(net, passes, DECODER, calls=calls(net))
        )
        assert found.agree, found


def test_keys_and_values_projected_for_old_tokens_again_are_named_in_their_cells() -> None:
    sick, passes = Net(again=True), kvtally.cached(7, 4)
    closed = kvtally.count(DECODER, passes, kernel="dense")
    found = kvtally.compare(closed, trace(sick, passes, DECODER, calls=calls(sick)))
    assert {(d.table, *d.cell) for d in found.differences} == {
        ("macs", "decode", layer, term) for layer in (0, 1) for term in (Term.k_proj, Term.v_proj)
    }
    assert all(d.right == d.left // 3 * (8 + 9 + 10) for d in found.differences)  # 3 steps over 8, 9 and 10 tokens


class Functional(nn.Module):
    """Makes a product with a weight of its own, and one between activations."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        thin = nn.functional.linear(x, self.weight)
        return torch.einsum("btc,bsc,bsd->btd", thin, thin, x)


def test_what_has_no_term_is_listed_with_module_operator_shapes_times_and_macs() -> None:
    net = Net(extra=nn.Sequential(nn.Linear(HIDDEN, HIDDEN, bias=False)))
    traced = trace(net, [Pass(new=4), Pass(new=1, past=4)], DECODER, calls=calls(net))
    assert traced.uncounted[len(NOT_COUNTED) :] == (
        f"blocks.0.extra.0: mm (4, 14) x (14, 14) … (1, 14) x (14, 14), 2 times, {5 * 14 * 14} MACs",
    )
    assert kvtally.compare(kvtally.count(DECODER, [Pass(new=4), Pass(new=1, past=4)], kernel="dense"), traced).agree

    net = Net(extra=Functional())
    seen = trace(net, [Pass(new=4)], DECODER, calls=calls(net)).uncounted[len(NOT_COUNTED) :]
    assert seen == (
        f"blocks.0.extra: mm (4, 14) x (14, 3), 1 times, {4 * 14 * 3} MACs",
        f"blocks.0.extra: bmm (1, 4, 3) x (1, 3, 4) … (1, 4, 4) x (1, 4, 14), 2 times, {4 * 4 * (3 + 14)} MACs",
    )


def test_a_weight_used_inside_attention_itself_is_not_taken_for_scores() -> None:
    net = Net()
    attention = net.blocks[0].attn
    healthy = attention.forward
    attention.extra_weight = nn.Parameter(torch.randn(HIDDEN, HIDDEN))
    attention.forward = lambda x, cache: healthy(x @ attention.extra_weight, cache)
    traced = trace(net, [Pass(new=4)], DECODER, calls=calls(net))
    assert traced.uncounted[len(NOT_COUNTED) :] == (f"blocks.0.attn: mm (4, 14) x (14, 14), 1 times, {4 * 14**2} MACs",)
    assert kvtally.compare(kvtally.count(DECODER, [Pass(new=4)], kernel="dense"), traced).agree


def test_a_product_of_other_sizes_inside_the_experts_is_not_taken_for_theirs() -> None:
    real, decoder = build(FAMILIES["mixtral"].config, device="cpu"), FAMILIES["mixtral"].decoder
    experts = real.model.layers[1].mlp.experts
    healthy = experts.forward
    experts.forward = lambda x, *routed: healthy(x + x @ torch.zeros(24, 3) @ torch.zeros(3, 24), *routed)
    traced = trace(real, [Pass(new=4)], decoder)
    assert traced.uncounted[len(NOT_COUNTED) :] == (
        f"model.layers.1.mlp.experts: mm (4, 24) x (24, 3) … (4, 3) x (3, 24), 2 times, {2 * 4 * 24 * 3} MACs",
    )
    assert kvtally.compare(kvtally.count(decoder, [Pass(new=4)], kernel="dense"), traced).agree


def test_a_fused_matrix_that_does_not_split_exactly_stays_under_its_first_term() -> None:
    wrong = Attention(num_heads=5, num_kv_heads=5, head_dim=6, v_head_dim=7)
    decoder = two(Layer(mixer=wrong, mlp=Mlp(width=34, gated=False)))
    real, passes = model("gpt_neox", "sdpa"), [Pass(new=4)]
    traced = trace(real, passes, decoder)
    assert traced.macs["prefill", 0, Term.q_proj] == 4 * 24 * 72
    assert ("prefill", 0, Term.k_proj) not in traced.macs
    found = kvtally.compare(kvtally.count(decoder, passes, kernel="dense"), traced)
    assert {"q_proj", "k_proj", "v_proj"} <= {str(d.cell[-1]) for d in found.differences}


@pytest.mark.parametrize(
    ("family", "change", "cells"),
    [
        ("llama", {"num_kv_heads": 4}, {"k_proj", "v_proj", "k_write", "v_write", "k_read", "v_read"}),
        ("mistral", {"window": 6}, {"qk", "pv", "k_read", "v_read", 0, 1}),
    ],
)
def test_a_decoder_that_is_not_the_model_is_named_in_the_right_cells(
    family: str, change: dict[str, int], cells: set[str]
) -> None:
    layer = FAMILIES[family].decoder.layers[0]
    assert isinstance(layer.mixer, Attention)
    wrong = two(replace(layer, mixer=replace(layer.mixer, **change)))
    passes = kvtally.cached(9, 4)
    found = kvtally.compare(kvtally.count(wrong, passes, kernel="dense"), trace(model(family, "sdpa"), passes, wrong))
    assert {d.cell[-1] for d in found.differences} == cells  # comparisons are named by their layer


def test_more_layers_than_the_decoder_has_are_shown() -> None:
    short = Decoder(hidden_size=24, vocab_size=61, layers=FAMILIES["llama"].decoder.layers[:1])
    found = kvtally.compare(
        kvtally.count(short, [Pass(new=4)], kernel="dense"), trace(model("llama", "sdpa"), [Pass(new=4)], short)
    )
    assert {d.cell[1] for d in found.differences} == {1}


def test_a_model_without_numbered_layers_is_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 5))
    unnamed = nn.Module()
    unnamed.only = net[0]
    with pytest.raises(kvtally.InputError, match=r"no module whose name ends in `\.0`"):
        trace(unnamed, [Pass(new=4)], DECODER, calls=calls(Net()))


def test_real_weights() -> None:
    """SmolLM2-135M: what its GGUF file says is typed in here by hand."""
    file = weights()
    if file is None:
        pytest.skip("SmolLM2-135M is not there: run `python tests/fetch_smollm2.py`, or set KVTALLY_SMOLLM2")
    from transformers import AutoModelForCausalLM

    real = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    layer = Layer(mixer=Attention(num_heads=9, num_kv_heads=3, head_dim=64), mlp=Mlp(width=1536))
    decoder = Decoder(hidden_size=576, vocab_size=49152, layers=(layer,) * 30)
    passes = kvtally.cached(12, 4)
    found = kvtally.compare(kvtally.count(decoder, passes, kernel="dense"), trace(real, passes, decoder))
    assert found.agree, found
