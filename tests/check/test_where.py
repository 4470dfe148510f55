"""Where: patterns are named only when they give the numbers, and in 16 bits a fault is still a fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.cache_utils import Cache  # noqa: E402

from check.faults_calls import FAULTS as CALLS  # noqa: E402
from check.faults_stored import FAULTS as STORED  # noqa: E402
from check.planted import Fault, planted, storing  # noqa: E402
from kvtally.live.adapter import of_transformers  # noqa: E402
from kvtally.live.check import check  # noqa: E402
from kvtally.live.float64 import float64  # noqa: E402
from kvtally.live.harness import as_found, build  # noqa: E402
from kvtally.live.where import ALL_RIGHT, where  # noqa: E402
from kvtally.live.zoo import scaled  # noqa: E402
from kvtally.live.zoo_shrink import shrunk  # noqa: E402

IDS = torch.tensor([[3, 14, 8, 21, 5, 9, 17]])


def two_calls(adapter: Any) -> Any:
    """A prompt of four tokens, then three more."""
    cache = adapter.fresh()
    yield adapter.extend(cache, IDS[:, :4])
    yield adapter.extend(cache, IDS[:, 4:])


def told(change: Any, *, layer: int | None = None) -> str:
    """Where, of a llama whose cache stores what `change` makes of it."""
    fault = Fault(
        name="", kind="", model="llama", groups=(), patches=((Cache, "update", storing(change, layer=layer)),)
    )
    model = scaled(build(shrunk("llama"), device="cpu"))
    with planted(fault), as_found(model), float64(model):
        return where(of_transformers(model), two_calls)


def test_a_right_cache_has_no_wrong_cell() -> None:
    assert told(lambda old, key, value, past: (key, value)) == ALL_RIGHT


def test_numbers_of_no_pattern_get_no_name() -> None:
    said = told(lambda old, key, value, past: (key + 1e-3 if past else key, value), layer=2)
    assert "the key of layer 2, position 4 is off by 0.001" in said
    assert not any(word in said for word in ("equals", "empty", "precision", "attended"))


def test_a_single_head_is_named() -> None:
    def change(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
        other = value.clone()
        other[:, 1, -1] = 0
        return key, other if past else value

    assert "the value of layer 1, head 1, position 6 is off" in told(change, layer=1)


def test_what_was_rounded_in_a_later_call_is_named_by_its_type() -> None:
    def change(_old: Any, key: Any, value: Any, past: int) -> tuple[Any, Any]:
        small = torch.ldexp((torch.ldexp(*[torch.frexp(key)[0], torch.tensor(11)])).round(), torch.frexp(key)[1] - 11)
        return (small if past else key), value

    assert told(change).endswith("it is what float16 keeps of it (lower precision)")


def test_an_adapter_without_cells_is_not_asked() -> None:
    model = build(shrunk("llama"), device="cpu")
    assert where(replace(of_transformers(model), cells=None), two_calls) == ""


SIXTEEN = ("bfloat16", "float16")
SMALL = [f for f in (*CALLS, *STORED) if f.name == "positions one too high after prefill"]


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_in_16_bits_a_healthy_model_is_healthy(dtype: str) -> None:
    report = check(scaled(build(shrunk("gpt2"), device="cpu")), scenarios="steps", tokens=12, dtype=dtype)
    assert report.good, str(report)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("fault", SMALL, ids=lambda fault: fault.name)
def test_in_16_bits_a_fault_is_a_defect(fault: Fault, dtype: str) -> None:
    with planted(fault):
        report = check(scaled(build(shrunk("llama"), device="cpu")), scenarios="steps", tokens=12, dtype=dtype)
    assert report.by_group()["steps"] == "DEFECT"
    assert any(all(word in a.where for word in fault.where) for a in report.defects)
