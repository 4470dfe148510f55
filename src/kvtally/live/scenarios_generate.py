"""Generate: what transformers' generate computed, against a pass over what it produced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kvtally.live.adapter import Unsupported
from kvtally.live.scenarios import Bench, Pair, Scenario
from kvtally.live.scenarios_padding import padded

MOST = 8  # new tokens


def _made(bench: Bench, ids: Any, **options: Any) -> Any:
    """What generate returns, with as many new tokens as the prompt of half the tokens leaves, up to `MOST`."""
    new = max(2, min(MOST, bench.tokens - bench.tokens // 2))
    chosen: dict[str, Any] = {"do_sample": False, "num_beams": 1, "max_new_tokens": new, "min_new_tokens": new}
    chosen |= {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": 0}
    return bench.need("generate")(ids, **(chosen | options))


def _prompt(bench: Bench, rows: int = 1) -> Any:
    bench.need("generate")
    bench.need("fresh")()  # a model without a cache says so
    return bench.rows(rows)[:, : max(1, bench.tokens // 2)]


def _forced(bench: Bench, made: Any) -> Iterator[Pair]:
    """The logits of each new token, against a pass without a cache over everything that was produced."""
    text, right = made.sequences, torch.stack(list(made.logits), 1)
    start = text.shape[1] - right.shape[1]
    yield Pair(position=start, left=bench.full(text)[:, start - 1 : -1], right=right)


def _plain(name: str, **options: Any) -> Scenario:
    def run(bench: Bench) -> Iterator[Pair]:
        ids = _prompt(bench)
        made = _made(bench, ids, attention_mask=torch.ones_like(ids), **options)
        yield from _forced(bench, made)

    return Scenario(name=name, group="generate", run=run)


def _padded(bench: Bench) -> Iterator[Pair]:
    """A left-padded batch, against each row alone."""
    _prompt(bench)
    bench.takes("positions")
    batch = padded(bench)
    made = _made(bench, batch.ids, attention_mask=batch.mask, max_new_tokens=4, min_new_tokens=4)
    right, n = torch.stack(list(made.logits), 1), bench.tokens
    rows = [bench.full(made.sequences[row : row + 1, start:]) for row, start in enumerate(batch.starts)]
    left = torch.cat([row[:, n - start - 1 : -1] for row, start in zip(rows, batch.starts, strict=True)])
    yield Pair(position=n, left=left, right=right)


def _carried(bench: Bench) -> Iterator[Pair]:
    """A second turn on the cache that the first one left behind."""
    ids = _prompt(bench)
    first = _made(bench, ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, min_new_tokens=3)
    named = [name for name in ("cache", "past_key_values") if name in first and first[name] is not None]
    if not named:
        raise Unsupported(f"generate of {bench.adapter.name} gives no cache back")
    text = torch.cat([first.sequences, bench.prompt()[:, -4:]], 1)
    options = {named[0]: first[named[0]], "max_new_tokens": 3, "min_new_tokens": 3}
    made = _made(bench, text, attention_mask=torch.ones_like(text), **options)
    yield from _forced(bench, made)


def _beams(bench: Bench) -> Iterator[Pair]:
    """The score of the best beam, against the sum of its log probabilities in a pass without a cache."""
    ids = _prompt(bench)
    options: dict[str, Any] = {"num_beams": 3, "length_penalty": 0.0, "output_scores": True}
    options |= {"forced_bos_token_id": None, "forced_eos_token_id": None}  # they would be scored as certain
    made = _made(bench, ids, attention_mask=torch.ones_like(ids), **options)
    text, start = made.sequences, made.sequences.shape[1] - len(made.logits)
    chances = bench.full(text)[:, start - 1 : -1].log_softmax(-1)
    left = chances.gather(2, text[:, start:, None]).sum()
    yield Pair(position=start, left=left.view(1, 1, 1), right=made.sequences_scores.view(1, 1, 1))


SCENARIOS = (
    _plain("generate"),
    _plain("generate without a cache", use_cache=False),
    _plain("generate, static cache", cache_implementation="static", disable_compile=True),
    _plain("generate, prefill in chunks", prefill_chunk_size=4),
    _plain("generate, prompt lookup", prompt_lookup_num_tokens=2),
    Scenario(name="generate, left-padded batch", group="generate", run=_padded),
    Scenario(name="generate on a carried cache", group="generate", run=_carried),
    Scenario(name="generate, beams", group="generate", run=_beams),
)
