"""Refused, crashed, or out of memory: what a model raises is told apart; what kvtally itself raises is not caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from check.numpy_decoder import Cache, NumpyDecoder
from check.own_models import in_numpy
from kvtally.core.errors import InputError
from kvtally.live import build, check
from kvtally.live import where as looking
from kvtally.live.adapter import Adapter, of_transformers
from kvtally.live.raised import Crashed, guarded, out_of_memory
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk

STEPS = ("prefill, then steps", "one token at a time")


def told(adapter: Adapter, scenario: str) -> Any:
    report = check(adapter, scenarios=scenario)
    return report, next(a for a in report.agreements if a.scenario == scenario)


def extending(before: Callable[[Cache, Any], None]) -> Adapter:
    """The NumPy decoder, `before(cache, ids)` called ahead of every call on a cache."""
    healthy = in_numpy(NumpyDecoder())

    def extend(cache: Any, ids: Any) -> Any:
        before(cache, ids)
        return healthy.extend(cache, ids)

    return replace(healthy, extend=extend)


def refusing(cache: Cache, ids: Any) -> None:
    if len(cache) and ids.shape[1] > 1:
        raise ValueError("one token at a time, please")


def crashing(cache: Cache, ids: Any) -> None:
    if len(cache) and ids.shape[1] > 1:
        np.zeros((2, 3)) @ np.zeros((2, 3))


def test_a_refusal_is_unsupported() -> None:
    _, chunks = told(extending(refusing), "chunks of 3")
    assert chunks.verdict == "unsupported"
    assert chunks.note.startswith("ValueError: one token at a time, please (check/test_raised.py:")
    assert told(extending(refusing), STEPS[1])[0].good


def test_a_crash_of_the_cached_path_alone_is_a_defect() -> None:
    report, chunks = told(extending(crashing), "chunks of 3")
    assert (chunks.verdict, report.good) == ("DEFECT", False)
    assert chunks.rule == "the cached path crashes where a call without a cache runs"
    assert chunks.note.startswith("crashed: ValueError: matmul: ")
    assert "(check/test_raised.py:" in chunks.text
    assert told(extending(crashing), STEPS[1])[0].good


def test_a_crash_without_a_cache_as_well_is_not_the_caches() -> None:
    healthy = in_numpy(NumpyDecoder())

    def odd(ids: Any, mask: Any) -> None:
        if mask is not None:
            np.zeros(3)[mask.shape[1]]

    def full(ids: Any, mask: Any = None) -> Any:
        odd(ids, mask)
        return healthy.full(ids)

    def extend(cache: Any, ids: Any, mask: Any = None) -> Any:
        odd(ids, mask)
        return healthy.extend(cache, ids)

    adapter = replace(healthy, full=full, extend=extend, takes=frozenset({"mask"}))
    _, masked = told(adapter, "conversation, full-length masks")
    assert masked.verdict == "unsupported"
    assert masked.note.endswith("without a cache as well")


def test_a_crop_that_crashes_is_a_defect() -> None:
    def crop(cache: Cache, n: int) -> None:
        cache.keys[99]

    _, edit = told(replace(in_numpy(NumpyDecoder()), crop=crop), "crop below a window")
    assert edit.verdict == "DEFECT"
    assert "crashed: KeyError: 99 (" in edit.text


def test_an_operation_that_a_class_of_caches_lacks_is_unsupported() -> None:
    model = scaled(build(shrunk("mamba2"), device="cpu"))
    _, selected = told(of_transformers(model), "select rows")
    assert selected.verdict == "unsupported"
    assert "'LinearAttentionLayer' object has no attribute 'batch_select_indices'" in selected.note


def test_an_assert_with_words_refuses() -> None:
    def spoken(cache: Cache, ids: Any) -> None:
        assert not len(cache), "only from an empty cache"

    _, chunks = told(extending(spoken), "chunks of 3")
    assert chunks.verdict == "unsupported"
    assert chunks.note.startswith("AssertionError: only from an empty cache")


def test_a_cache_of_a_models_own_that_lacks_an_operation_is_unsupported() -> None:
    model = scaled(build(shrunk("rwkv"), device="cpu"))
    report = check(of_transformers(model), scenarios=["crop below a window", "reorder"], tokens=9)
    said = {a.scenario: (a.verdict, a.note) for a in report.agreements if a.group != "power"}
    assert said["crop below a window"] == ("unsupported", "list has no `crop`")
    assert said["reorder"] == ("unsupported", "the cache of RwkvForCausalLM is made here for one sequence")


def test_a_real_crash_of_transformers() -> None:
    """The cached path of FalconMamba applies the mask of the whole text to the new tokens alone."""
    model = scaled(build(shrunk("falcon_mamba"), device="cpu"))
    _, masked = told(of_transformers(model), "conversation, full-length masks")
    assert masked.verdict == "DEFECT"
    assert "crashed: RuntimeError: The size of tensor a" in masked.note


def test_guarding_twice_changes_nothing() -> None:
    adapter = guarded(guarded(extending(crashing)))
    cache = adapter.fresh()
    ids = np.array([[1, 2, 3]])
    adapter.extend(cache, ids)
    with pytest.raises(Crashed, match="crashed: ValueError"):
        adapter.extend(cache, ids)


def test_a_fault_of_where_does_not_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise TypeError("a fault of the look itself")

    model = scaled(build(shrunk("gpt2"), device="cpu"))
    adapter = of_transformers(model)
    sick = replace(adapter, extend=lambda held, ids, **given: adapter.extend(held, ids.flip(1), **given))
    monkeypatch.setattr(looking, "_wrong", broken)
    with pytest.raises(TypeError, match="a fault of the look itself"):
        check(sick, scenarios="chunks of 3", tokens=9)


def no_memory(*_: Any) -> None:
    torch.empty(1 << 60)  # a real failure of torch's own allocator


def test_running_out_of_memory_is_one_sentence() -> None:
    healthy = in_numpy(NumpyDecoder())

    def full(ids: Any) -> Any:
        no_memory()

    for adapter in (replace(healthy, full=full), extending(no_memory)):
        with pytest.raises(InputError, match=r"^out of memory: ") as caught:
            check(adapter, scenarios="steps")
        assert caught.value.hint == "ask for fewer tokens, fewer scenarios, or a smaller dtype"
    assert out_of_memory(torch.OutOfMemoryError("CUDA")) and out_of_memory(MemoryError())
    assert not out_of_memory(RuntimeError("shapes do not fit"))


def test_where_float64_does_not_run_the_own_precision_decides() -> None:
    """A model that falls over in float64 is not called right because of it."""
    model = scaled(build(shrunk("llama"), device="cpu"))
    adapter = of_transformers(model)

    def extend(held: Any, ids: Any, **given: Any) -> Any:
        if held.past and next(model.parameters()).dtype == torch.float64:
            ids[:, 1_000_000]
        places = torch.arange(held.past + 1, held.past + 1 + ids.shape[1])[None] if held.past else None
        return adapter.extend(held, ids, **({"positions": places} if held.past else {}) | given)

    _, steps = told(replace(adapter, extend=extend), STEPS[0])
    assert (steps.verdict, steps.precision) == ("DEFECT", "float32")
    assert "in float32, and float64 does not run: crashed: IndexError" in steps.rule
