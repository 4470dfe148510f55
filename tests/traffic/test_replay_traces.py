"""Figures published for public traces, and the hits of vLLM's own block manager."""

from __future__ import annotations

import json
import os
from dataclasses import replace as changed
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kvtally.core.errors import InputError
from kvtally.traffic.read import read
from kvtally.traffic.replay import replay
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import Runs, runs
from kvtally.traffic.vllm import vllm_hits
from kvtally.traffic.why import edits

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared"))
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of shared traces (KVTALLY_SHARED)")

PERCENTS = (1, 5, 10, 25, 50)  # of the distinct blocks
PUBLISHED = {  # Mooncake, FAST'25 release: hit share of blocks, without limit and at PERCENTS; plain LRU
    "conversation": (".366", ".052", ".195", ".278", ".353", ".363"),
    "synthetic": (".640", ".034", ".155", ".260", ".443", ".589"),
}
ENGINE = {
    "conversation": (".3664", ".0525", ".1958", ".2789", ".3535", ".3631"),
    "synthetic": (".6396", ".0381", ".1566", ".2623", ".4441", ".5888"),
}
TOKENS = {"conversation": "37.36%", "synthetic": "65.12%"}


@cache
def mooncake(name: str) -> Requests:
    return read([str(SHARED / "traces" / "mooncake" / f"{name}_trace.jsonl")])


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("order", "figures", "digits"), [("plain", PUBLISHED, 3), ("engine", ENGINE, 4)])
def test_mooncake_figures_to_the_printed_digit(
    name: str, order: str, figures: dict[str, tuple[str, ...]], digits: int
) -> None:
    reuse = replay(mooncake(name), order=order)
    shares = [reuse.share(), *(reuse.share(reuse.distinct * percent // 100) for percent in PERCENTS)]
    assert tuple(f"{float(share):.{digits}f}"[1:] for share in shares) == figures[name]


@pytest.mark.parametrize("name", TOKENS)
def test_mooncake_tokens_without_limit(name: str) -> None:
    """The published share counts a hit block whole, the token that is computed again as well."""
    requests = mooncake(name)
    found = np.minimum(runs(requests).hits() * requests.block_size, requests.input_tokens)
    assert f"{found.sum() / requests.input_tokens.sum():.2%}" == TOKENS[name]


def test_vllm_request_by_request() -> None:
    facts = json.loads((SHARED / "facts" / "vllm_hits_conversation.json").read_text(encoding="utf-8"))
    requests = mooncake("conversation")
    assert len(facts["hits_by_capacity"]) == 3
    for capacity, hits in facts["hits_by_capacity"].items():
        assert len(hits) == 12_031
        assert vllm_hits(requests, int(capacity)).tolist() == hits


def test_a_prompt_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(InputError, match="request 1 takes 3 blocks, expected at most the 2 of the cache"):
        vllm_hits(Requests.of([[0], [0, 1, 2]], block_size=16), 2)


@cache
def claude_code() -> Runs:
    return runs(read([str(SHARED / "traces" / "kv-cache-tester" / "claude_code_710_runs.jsonl.zst")]))


def test_claude_code_figures() -> None:
    """A block still counts exactly at its time to live: at most, not less than, so many seconds."""
    table = claude_code()
    accesses = table.requests.accesses
    assert (len(table.requests), accesses) == (49_334, 94_310_647)
    shares = [table.curve(ttl=ttl)[-1] / accesses for ttl in (None, 60, 300, 3600)]
    assert [f"{shares[0]:.2%}", *(f"{share:.1%}" for share in shares[1:])] == ["96.34%", "78.8%", "91.6%", "96.0%"]
    coarse = [table.hits(increment=blocks).sum() / accesses for blocks in (1024 // 64, 2048 // 64)]
    assert [f"{share:.4f}"[1:] for share in coarse] == [".9596", ".9555"]


def test_claude_code_edits() -> None:
    """Of requests that follow another, 3.7 % change its prompt before the last block, subagents among them.

    Told apart from the session that started them, as `replay` does, they are fewer: a change of speaker is no edit.
    """
    requests = claude_code().requests
    names = [name.partition("/")[0] for name in requests.names["session"]]
    traces = {name: n for n, name in enumerate(dict.fromkeys(names))}
    assert len(traces) == 710
    whole = edits(changed(requests, session=np.array([traces[name] for name in names])[requests.session]))
    apart = edits(requests)
    shares = [(found.edited - found.in_last_block) / found.follow for found in (whole, apart)]
    assert [f"{share:.1%}" for share in shares] == ["3.7%", "2.8%"]
