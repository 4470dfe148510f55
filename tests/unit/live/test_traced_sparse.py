"""Closed = traced in every cell that has a product, where an indexer chooses, entries are pooled, a layer is two."""

from __future__ import annotations

import pytest

import kvtally
from kvtally import Term
from kvtally.core.tally import NOT_COUNTED
from kvtally.live import as_run, build, trace
from kvtally.live.names import parts_of_a_layer, place
from kvtally.live.zoo_shrink import shrunk
from kvtally.pure.config import read_config

# All of them go past the window, the choice of an indexer and a few entries, chunks through the middle of one.
LISTS = {
    "uncached": kvtally.uncached(9, 3),
    "cached": kvtally.cached(10, 4),
    "chunked": kvtally.chunked(14, 3, 4),
    "edited": kvtally.edited(13, 7, 3),
}
# Made element by element in some: no product that could be seen.
UNSEEN = {"deepseek_v32": set(), "hy_v4": set(), "longcat_flash": set(), "deepseek_v4": {Term.index_sum}}


@pytest.mark.parametrize("family", UNSEEN)
def test_closed_equals_traced_in_every_cell(family: str) -> None:
    real = build(shrunk(family), device="cpu", dtype="float32")
    decoder = read_config(real.config.to_dict())
    for name, passes in LISTS.items():
        asked = as_run(real, passes)
        closed, traced = kvtally.count(decoder, asked, kernel="dense"), trace(real, asked, decoder)
        wrong = [
            d for d in kvtally.compare(closed, traced).differences if d.cell[-1:] and d.cell[-1] not in UNSEEN[family]
        ]
        assert not wrong, f"{name}: {wrong[:3]}"
        assert closed.states == traced.states
        assert traced.uncounted == NOT_COUNTED
        assert any(traced.macs.get(("prefill", 1, term)) for term in (Term.index_qk, Term.qk))


def test_a_layer_that_is_two_numbers_them() -> None:
    names = ["model.layers.3.self_attn.0", "model.layers.3.self_attn.1", "model.layers.3.mlps.1.up_proj"]
    assert parts_of_a_layer(names) == 2
    assert [place(name, 2).layer for name in names] == [6, 7, 7]
    assert place(names[1], 2).core == (Term.qk, Term.pv)
    assert place("model.layers.3.mlp.router", 2).layer == 6
