"""The record of a rounded pass: what it says of itself."""

from __future__ import annotations

import json
from fractions import Fraction

from kvtally.core.agreement import Agreement, Step
from kvtally.core.rounded import Channel, Rounded, Stored, Stretch

STEPS = (
    Step(position=0, max_abs=0.25, token_left=3, token_right=3, margin=1.0),
    Step(position=1, max_abs=0.5, token_left=3, token_right=4, margin=0.125),
    Step(position=2, max_abs=0.0, token_left=1, token_right=2, margin=0.5),
)
RECORD = Rounded(
    name="<tiny>",
    k="int4",
    v="exact",
    agreement=Agreement(
        scenario="calls of 8", group="steps", verdict="LOSSY", error=0.1, scale=5.0, precision="float32", steps=STEPS
    ),
    tokens=3,
    top1=1 / 3,
    stored=(Stored(layer=0, part="k", error=0.3, heads=(0.3,)), Stored(layer=1, part="k", error=0.4, heads=(0.4,))),
    channels=(Channel(layer=0, head=0, channel=5, times=9.0, error=0.5),),
    stretches=(Stretch(start=0, k=0.35, v=0.0, max_abs=0.5),),
    bytes_exact=600,
    bytes_kept=400,
    conventions={"tokens": 3},
)

SAID = (
    "<tiny>: K int4, V exact, 3 tokens",
    "  within the tolerance of check      no",
    "  largest |logit difference|         0.5 of 5, 0.1 of it",
    "  mean |logit difference|            0",
    "  KL to the exact output             mean 0, 95 % 0, 99.9 % 0 nats",
    "  same likeliest token               33.3 %",
    "  first to change                    position 1, margin 0.12",
    "  perplexity                         0.0000 exact, 0.0000 rounded",
    "  worst layers, K                    1 (0.4), 0 (0.3)",
    "  bytes a token                      133.3",
    "  requests in the memory of 16 bits  1.5 times (3/2)",
)


def test_what_follows_from_the_fields() -> None:
    assert RECORD.max_abs == 0.5
    assert RECORD.changed == STEPS[1]
    assert RECORD.times == Fraction(3, 2) and RECORD.bytes_a_token == Fraction(400, 3)
    assert RECORD.part("v") is None and RECORD.part("k") == (0.125) ** 0.5  # of 0.09 and 0.16
    assert [s.layer for s in RECORD.worst("k")] == [1, 0]
    assert not RECORD.within


def test_the_record_is_json_and_says_every_field() -> None:
    record = json.loads(json.dumps(RECORD.to_dict()))
    assert record["times"] == [3, 2] and record["bytes_a_token"] == [400, 3]
    assert record["changed"]["position"] == 1 and record["within"] is False
    assert record["stored"][1] == {"layer": 1, "part": "k", "error": 0.4, "heads": [0.4]}
    assert set(Rounded.__slots__) <= set(record)


def test_it_reads_in_a_terminal_and_in_a_notebook() -> None:
    assert repr(RECORD) == str(RECORD) == "\n".join(SAID)
    assert "&lt;tiny&gt;" in RECORD._repr_html_() and "<tiny>" not in RECORD._repr_html_()
