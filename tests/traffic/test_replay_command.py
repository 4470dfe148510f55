"""`kvtally replay`: its five lines, its formats, its files; and why, against counting by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow.parquet as pq

from kvtally.frontends.cli import main
from kvtally.frontends.replay_question import Question, answer
from kvtally.frontends.replay_report import page
from kvtally.frontends.replay_text import as_text, sections
from kvtally.pure.model import read_model
from kvtally.traffic.read import read
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import runs
from kvtally.traffic.why import why

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "traces"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")
WIDTH = 75


@pytest.fixture
def trace(tmp_path: Path) -> str:
    made = tmp_path / "t.jsonl"
    asked = [(0, "a", [0, 1, 2]), (100, "b", [0, 3]), (500, "a", [0, 1, 4]), (9000, "<b>", [5])]
    made.write_text("".join(
        json.dumps({"timestamp": t * 1000, "input_length": 16 * len(ids) + 3, "hash_ids": ids, "block_size": 16,
                    "session_id": session}) + "\n"
        for t, session, ids in asked
    ))  # fmt: skip
    return str(made)


def test_what_breaks_reuse_is_counted_by_hand(trace: str) -> None:
    found = why(runs(read([trace])))
    assert (found.requests, found.accesses, found.hits) == (4, 9, 3)  # 0; 0 and 1
    assert (found.cold, found.cold_accesses, found.whole) == (2, 4, 0)
    assert found.within == {60: 0, 300: 1, 3600: 3}  # 0 after 100 s; 0 after 400 s, 1 after 500 s
    assert found.diverge == ((0, 1, 2), (16, 32, 1), (32, 64, 1))
    assert found.edits is not None
    assert (found.edits.follow, found.edits.edited, found.edits.in_last_block, found.edits.blocks) == (1, 1, 1, 1)
    assert found.coarser[32] == 2 * 1  # [0 1] again
    assert found.floor_tokens == 4 * 15


streams = st.lists(
    st.tuples(st.lists(st.integers(0, 1), max_size=5), st.integers(0, 400)), min_size=1, max_size=12
)  # fmt: skip


@given(streams)
def test_hits_by_age_and_depth_equal_a_count_over_all_pairs(stream: list[tuple[list[int], int]]) -> None:
    ids: dict[tuple[int, ...], int] = {}
    paths = [[ids.setdefault(tuple(p[: k + 1]), len(ids)) for k in range(len(p))] for p, _ in stream]
    time = np.cumsum([gap for _, gap in stream]).astype(float).tolist()
    found = why(runs(Requests.of(paths, block_size=16, time=time)))
    ages = [[min((time[r] - time[q] for q in range(r) if b in paths[q]), default=None) for b in paths[r]]
            for r in range(len(paths))]  # fmt: skip
    known = [age for row in ages for age in row if age is not None]
    assert found.hits == len(known)
    assert found.within == {ttl: sum(age <= ttl for age in known) for ttl in (60, 300, 3600)}
    hits = [sum(age is not None for age in row) for row in ages]
    assert found.cold == sum(not n for n in hits)
    assert found.whole == sum(n == len(p) for n, p in zip(hits, paths, strict=True))
    assert sum(n for _, _, n in found.diverge) == len(paths) - found.whole
    for low, high, n in found.diverge:
        assert n == sum(low <= 16 * h < high for h, p in zip(hits, paths, strict=True) if h < len(p))


def test_the_first_screen_is_five_lines_of_75_columns(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--model", "llama-3.1-8b"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= WIDTH
    blank = shown.index("")
    five = shown[blank + 1 : shown.index("", blank + 1)]
    assert [line.split()[0] for line in five[:2]] == ["possible", "memory"]
    assert len(five) == 5


def test_json_is_the_record(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--format", "json", "--by", "session", "--ttl", "5min"]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected = answer((trace,), read([trace]), Question(ttl=300.0, by="session"))
    assert shown == json.loads(json.dumps({"verb": "replay", **expected.to_dict()}))
    assert shown["reuse"]["possible_blocks"] == 1
    assert [part["accesses"] for part in shown["parts"]] == [6, 2, 1]


@pytest.mark.parametrize("form", ["csv", "md"])
def test_other_formats_have_a_row_for_each_capacity(trace: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--format", form]) == 0
    assert capsys.readouterr().out.count("100" + (" %" if form == "md" else ",")) >= 1


def test_csv_has_the_rules_too(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--format", "csv", "--policy", "belady", "--capacity", "5"]) == 0
    head, *points, last = capsys.readouterr().out.splitlines()
    assert head == "rule,share_of_possible,blocks,hits,accesses,states,bytes,macs"
    assert [row.split(",")[:2] for row in points] == [["lru", str(n)] for n in (50, 75, 90, 95, 99, 100)]
    assert last == "belady,,5,3,9,,,"


@pytest.mark.parametrize("words", ["", "--ttl 7min", "--min-prefix 2", "--model llama-3.1-8b"])
def test_the_page_draws_what_the_run_table_says(trace: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = dict(zip(words.split()[::2], words.split()[1::2], strict=True))
    question = Question(
        decoder=read_model(given["--model"]) if "--model" in given else None,
        ttl=420.0 if "--ttl" in given else None,
        min_prefix=int(given.get("--min-prefix", 0)),
    )
    found = answer((trace,), read([trace]), question)
    shown = page(found, ["kvtally"])
    curve, depths = shown.pictures
    for blocks, _, hit, _ in curve.rows:
        hits = found.table.hits(int(blocks), ttl=question.ttl, min_prefix=question.min_prefix).sum()
        assert hit == f"{100 * hits / 9:.1f} %"
    assert depths.rows == [("none", "2", "50.0 %"), ("16", "1", "25.0 %"), ("32", "1", "25.0 %")]
    grid, *tables = shown.heats
    ttls = [60, 300, *([420] if question.ttl else []), 3600, None]
    for (_, cells), ttl in zip(grid.rows, ttls, strict=True):
        for head, (cell, share) in zip(grid.heads, cells, strict=True):
            hits = found.table.hits(int(head.split()[0]), ttl=ttl, min_prefix=question.min_prefix).sum()
            assert (cell, share) == (f"{100 * hits / 9:.1f} %", hits / 9)
    assert [table.title for table in tables] == [title for title, _ in sections(found)]


def test_each_step_is_told_before_it_is_done(trace: str) -> None:
    told: list[tuple[str, int, int]] = []
    question = Question(decoder=read_model("gpt2"), rules=("lru", "fifo"), capacities=(2, 3))
    answer((trace,), read([trace]), question, lambda *step: told.append(step))
    assert [done for _, done, _ in told] == list(range(12))
    assert {whole for *_, whole in told} == {12}
    assert [name for name, *_ in told[-2:]] == ["fifo", "fifo"]


def test_rules_at_capacities(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--policy", "lru,belady", "--mode", "vllm", "--capacity", "5,9"]
    assert main(["replay", trace, "--format", "json", *words]) == 0
    found = {(r["rule"], r["blocks"]): r["hits"] for r in json.loads(capsys.readouterr().out)["rules"]}
    assert found == {(rule, blocks): 3 for rule in ("lru", "belady", "vllm") for blocks in (5, 9)}


def test_files_are_written_whole(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["replay", trace, "--by", "session", "--html", str(tmp_path / "r.html"), "--out", str(tmp_path / "o")])
        == 0
    )
    page = (tmp_path / "r.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert sorted(file.name for file in (tmp_path / "o").iterdir()) == ["replay.json", "runs.parquet"]
    table = pq.read_table(tmp_path / "o" / "runs.parquet")
    assert table["length"].to_pylist() == [1, 1, 1]
    assert json.loads((tmp_path / "o" / "replay.json").read_text())["reuse"]["accesses"] == 9


def test_convert_and_replay_say_the_same(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = str(tmp_path / "t.parquet")
    assert main(["replay", "convert", trace, "--to", made]) == 0
    assert "4 requests, 9 blocks" in capsys.readouterr().err
    one, two = (as_text(answer(("t",), read([name]), Question()), "json", on=False) for name in (trace, made))
    assert one == two


@shared
def test_the_figures_of_the_claude_code_traces() -> None:
    found = why(runs(read([str(SHARED / "kv-cache-tester" / "claude_code_710_runs.jsonl.zst")])))
    share = [round(100 * hits / found.accesses, 1) for hits in (found.hits, *found.within.values())]
    assert share == [96.3, 78.8, 91.6, 96.0]
    assert round(found.coarser[1024] / found.accesses, 4) == 0.9596
