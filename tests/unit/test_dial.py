"""The dial: bytes by hand, an order that precision must keep, and the decoder it runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kvtally.core.errors import InputError
from kvtally.core.passes import cached, chunked
from kvtally.frontends.dial import as_text
from kvtally.pure.count_executed import execute, largest_difference
from kvtally.pure.dial import EMBEDDED, PARTS, Dial, dial, effects
from kvtally.pure.kv_cache import Head, KVCache
from kvtally.pure.meter import Meter
from kvtally.pure.round_by_hand import BY_HAND


@pytest.fixture(scope="module")
def table() -> Dial:
    return dial(tokens=8)


def test_every_type_has_a_row_and_its_bytes_are_four_rows_of_32(table: Dial) -> None:
    assert {row.dtype: row.bytes_per_token for row in table.rows} == {
        "fp32": 4 * 128, "bf16": 4 * 64, "fp16": 4 * 64, "fp8_e4m3": 4 * 32, "fp8_e5m2": 4 * 32,
        "fp8_per_token_head": 4 * 36, "int8": 4 * 36, "int8_per_token_head": 4 * 36, "int4": 4 * 20, "int2": 4 * 12,
        "nvfp4": 4 * 18, "q8_0": 4 * 34, "q5_1": 4 * 24, "q5_0": 4 * 22, "q4_1": 4 * 20, "q4_0": 4 * 18,
    }  # fmt: skip
    assert tuple(row.dtype for row in table.rows) == tuple(BY_HAND)
    assert table.positions == 8


def test_less_precision_changes_more_and_the_table_is_the_same_every_time(table: Dial) -> None:
    found = {row.dtype: row for row in table.rows}
    for part in PARTS:
        order = [getattr(found[name], part).largest for name in ("fp32", "fp16", "int8", "int4", "int2")]
        assert order == sorted(order)
        assert 0 < order[0] < 1e-6 * table.scale  # float32 against Python's 64 bits
    assert found["fp32"].both.same == table.positions
    again = dial(["int2", "q4_0"], tokens=8)
    assert again.rows == (found["int2"], found["q4_0"])


def test_the_decoder_is_the_one_that_counts_and_an_exact_cache_changes_nothing() -> None:
    counted = execute(EMBEDDED, cached(1, 8))
    quick = execute(EMBEDDED, cached(1, 8), meter=Meter(counting=False))
    kept = execute(EMBEDDED, cached(1, 8), cache=KVCache(stored=lambda heads: [Head(h.keys, h.values) for h in heads]))
    assert largest_difference(counted, quick) < 1e-12  # a sum is made in one order or another
    assert kept.outputs == counted.outputs
    assert kept.tally.macs == counted.tally.macs
    assert quick.tally.total == 0 < counted.tally.total


def test_a_pass_reads_its_own_keys_and_values_as_stored_so_that_chunks_do_not_matter() -> None:
    def coarse(heads: list[Head]) -> list[Head]:
        return [
            Head([[round(x, 1) for x in k] for k in h.keys], [[round(x) for x in v] for v in h.values]) for h in heads
        ]

    one = execute(EMBEDDED, cached(6, 3), cache=KVCache(stored=coarse))
    many = execute(EMBEDDED, chunked(6, 3, 2), cache=KVCache(stored=coarse))
    exact = execute(EMBEDDED, cached(6, 3))
    assert largest_difference(one, many) < 1e-9
    assert largest_difference(one, exact) > 1e-3
    refilled = execute(EMBEDDED, cached(6, 3)[1:], cache=KVCache(stored=coarse))  # a past that no pass has cached
    assert largest_difference(one, refilled) < 1e-9


def test_the_record_is_json_and_text_shows_all_of_it(table: Dial) -> None:
    record = json.loads(json.dumps(table.to_dict()))
    assert record["rows"][0]["k"] == {"largest": table.rows[0].k.largest, "same": 8}
    lines = as_text(table).splitlines()
    assert max(map(len, lines)) <= 80
    for row in table.rows:
        (line,) = (text for text in lines if text.split()[:1] == [row.dtype])
        told = [f"{row.bytes_per_token}"]
        told += [n for e in effects(row) for n in (f"{e.largest / table.scale:.1e}", f"{e.same}")]
        assert line.split()[1:] == told
        assert f"{row.dtype}, {row.bytes_per_token} B a token" in str(table)
        assert f"<th>{row.dtype}</th><td>{row.bytes_per_token}</td>" in table._repr_html_()
    assert repr(table) == str(table)


def test_it_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; from kvtally.pure.dial import dial; dial(['int4'], tokens=2); "
        "print(sorted({'torch', 'numpy', 'click', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dial(["int4_g32"]), "`dtype` is 'int4_g32'; known: `bf16`, "),
        (lambda: dial([]), "`dtypes` is empty, expected one or more"),
        (lambda: dial(tokens=0), "`tokens` is 0, expected an integer of at least 1"),
    ],
)
def test_wrong_questions_are_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as refused:
        call()
    assert message in refused.value.problem


def test_the_record_names_what_it_holds(table: Dial) -> None:
    record = table.to_dict()
    assert record["scale"] == table.scale and record["decoder"] == table.decoder
    assert not any(name.startswith("_") for name in record)
