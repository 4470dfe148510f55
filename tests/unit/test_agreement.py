"""An Agreement's verdicts, and the Report that sums them up."""

from __future__ import annotations

import json
from typing import Any

from kvtally.core.agreement import THRESHOLD, Agreement, Report, Step


def made(verdict: str, group: str = "steps", **more: Any) -> Agreement:
    return Agreement(scenario=f"a {verdict} <one>", group=group, verdict=verdict, **more)


def test_the_worst_verdict_is_the_reports() -> None:
    both = Report(name="m", agreements=(made("same"), made("DEFECT", "edit", precision="float64", error=0.5)))
    assert (both.verdict, both.good, both.by_group()) == ("DEFECT", False, {"steps": "same", "edit": "DEFECT"})
    only_power = Report(name="m", agreements=(made("same", "power"), made("unsupported")))
    assert (only_power.verdict, only_power.good) == ("unsupported", False)
    assert Report(name="m", agreements=(made("TIE"), made("unsupported"))).good


def test_power_alone_is_good_where_all_of_it_ran() -> None:
    seen = Report(name="m", agreements=(made("same", "power"), made("rounding", "power")))
    assert (seen.verdict, seen.good) == ("rounding", True)
    for other in ("unsupported", "blind", "not comparable"):
        half = Report(name="m", agreements=(made("same", "power"), made(other, "power")))
        assert (half.verdict, half.good) == (other, False)


def test_the_record_of_two_groups_is_json() -> None:
    both = Report(name="m", agreements=(made("same"), made("DEFECT", "edit")))
    assert json.loads(json.dumps(both.to_dict()))["groups"] == {"steps": "same", "edit": "DEFECT"}


def test_the_first_position_is_the_first_above_the_threshold() -> None:
    steps = tuple(
        Step(position=k, max_abs=gap, token_left=1, token_right=2, margin=0.1)
        for k, gap in enumerate([0.0, 2 * THRESHOLD, 20 * THRESHOLD, float("inf")])
    )
    a = made("DEFECT", scale=10.0, steps=steps, precision="float64", error=1.0)
    assert a.first == steps[2]
    assert "first at position 2" in a.text


def test_the_notebook_page_is_escaped() -> None:
    html = Report(name="<b>", agreements=(made("DEFECT", note="<script>"),))._repr_html_()
    assert "<script>" not in html
    assert "<one>" not in html
    assert "&lt;script&gt;" in html


def test_the_record_and_the_table_hold_everything() -> None:
    one = made("same", "power", precision="float32", rule="all bits are equal")
    bad = made("DEFECT", "edit", precision="float64", error=0.25, where="layer 2", note="seen")
    report = Report(name="m", agreements=(one, bad), conventions={"tokens": 9})
    record = report.to_dict()
    assert list(record) == ["name", "verdict", "good", "groups", "conventions", "agreements"]
    assert (record["name"], record["verdict"], record["good"], record["conventions"]) == (
        "m",
        "DEFECT",
        False,
        {"tokens": 9},
    )
    assert [a["scenario"] for a in record["agreements"]] == ["a same <one>", "a DEFECT <one>"]
    assert str(report).splitlines() == [
        "group  scenario        verdict  error    precision",
        "power  a same <one>    same     0.0e+00  float32",
        "edit   a DEFECT <one>  DEFECT   2.5e-01  float64",
        "",
        "edit: a DEFECT <one>: layer 2",
        "edit: a DEFECT <one>: seen",
        "",
        "m: DEFECT: 2 scenarios ran, 1 defects",
        "  edit: a DEFECT <one>: DEFECT, error 0.25 in float64; layer 2; seen",
    ]
    cells = [
        ("power", "a same &lt;one&gt;", "same", "0.0e+00", "all bits are equal", ""),
        ("edit", "a DEFECT &lt;one&gt;", "DEFECT", "2.5e-01", "", "layer 2; seen"),
    ]
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
    head = "".join(f"<th>{name}</th>" for name in ("group", "scenario", "verdict", "error", "rule", "where, note"))
    caption = "<caption>m: DEFECT: 2 scenarios ran, 1 defects</caption>"
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    assert report._repr_html_() == table
