"""Figures of two sets of logits, and errors of what is kept, against torch's own on the whole."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("transformers")

import torch
from torch.nn.functional import cross_entropy, kl_div

from kvtally.live.rounding_error import Errors
from kvtally.live.rounding_figures import Figures, exact

ROWS, VOCAB = 75, 23


def test_figures_are_those_of_the_whole() -> None:
    numbers = torch.Generator().manual_seed(3)
    left = torch.randn(ROWS, VOCAB, generator=numbers)
    right = left + 0.1 * torch.randn(ROWS, VOCAB, generator=numbers)
    text = torch.randint(VOCAB, (ROWS,), generator=numbers)
    figures = Figures()
    for start, end in ((0, 40), (40, ROWS)):
        figures.add(exact(start, left[start:end], text[start + 1 : end + 1]), right[start:end])
    a, b = left.double().log_softmax(-1), right.double().log_softmax(-1)
    by_row = kl_div(b, a, reduction="none", log_target=True).sum(-1)
    assert figures.kl == pytest.approx(by_row.tolist(), rel=1e-9)
    assert figures.percentile(0.95) == sorted(figures.kl)[math.ceil(0.95 * ROWS) - 1]
    assert figures.percentile(0.999) == max(figures.kl)
    assert figures.largest == float((left.double() - right).abs().max())
    assert figures.total_abs == pytest.approx(float((left.double() - right).abs().sum()), rel=1e-12)
    assert figures.perplexity(figures.nll) == pytest.approx(
        math.exp(float(cross_entropy(right[:-1].double(), text[1:]))), rel=1e-9
    )
    assert figures.perplexity(figures.nll_exact) == pytest.approx(
        math.exp(float(cross_entropy(left[:-1].double(), text[1:]))), rel=1e-9
    )
    assert [s.position for s in figures.steps] == list(range(ROWS))
    assert [s.token_left for s in figures.steps] == left.argmax(-1).tolist()
    assert [s.token_right for s in figures.steps] == right.argmax(-1).tolist()
    best = left.topk(2).values
    assert [s.margin for s in figures.steps] == pytest.approx((best[:, 0] - best[:, 1]).tolist())


def test_equal_logits_are_zero_everywhere_masked_ones_too() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    logits[:, 2] = -torch.inf
    figures = Figures()
    figures.add(exact(0, logits, torch.tensor([0, 1, 3, 4])), logits.clone())
    assert figures.same and figures.largest == 0 and figures.kl == [0.0] * 5
    assert figures.scale == float(logits[logits.isfinite()].abs().max())


def test_a_tie_of_the_rounded_run_is_no_change() -> None:
    left = torch.tensor([[0.0, 2.0, 1.9]])
    figures = Figures()
    figures.add(exact(0, left, torch.tensor([1])), torch.tensor([[2.0, 2.0, 1.0]]))
    assert (figures.steps[0].token_left, figures.steps[0].token_right) == (1, 1)


def test_errors_are_those_of_the_whole_by_layer_head_and_position() -> None:
    numbers = torch.Generator().manual_seed(5)
    given = torch.randn(1, 3, 11, 6, generator=numbers)
    kept = given + 0.01 * torch.randn(given.shape, generator=numbers)
    errors = Errors()
    for start, end in ((0, 4), (4, 5), (5, 11)):
        errors.watch("k", 2, start, given[:, :, start:end], kept[:, :, start:end])
    (stored,) = errors.stored()
    lost, whole = (kept - given).double().square(), given.double().square()
    assert (stored.layer, stored.part) == (2, "k")
    assert stored.error == pytest.approx(float((lost.sum() / whole.sum()).sqrt()), rel=1e-6)
    assert stored.heads == pytest.approx((lost.sum((0, 2, 3)) / whole.sum((0, 2, 3))).sqrt().tolist(), rel=1e-6)
    part = slice(3, 9)
    at = (lost[:, :, part].sum() / whole[:, :, part].sum()).sqrt()
    assert errors.between("k", 3, 9) == pytest.approx(float(at), rel=1e-6)
    assert errors.between("v", 0, 11) == 0


def test_a_channel_that_stands_out_is_named() -> None:
    given = torch.randn(1, 2, 50, 16, generator=torch.Generator().manual_seed(1))
    given[:, 1, :, 9] *= 20
    errors = Errors()
    errors.watch("k", 4, 0, given, given + 0.01 * given.abs().amax(-1, keepdim=True))
    many, (channel,) = errors.channels()
    assert many == 1 and (channel.layer, channel.head, channel.channel) == (4, 1, 9)
    size = given[0, 1].double().square().sum(0).sqrt()
    assert channel.times == pytest.approx(float(size[9] / size.median()), rel=1e-6)
    assert 15 < channel.times < 25 and channel.error == pytest.approx(1 / 16)
