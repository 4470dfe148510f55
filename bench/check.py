"""Cost of `check`: against one cached generation, against re-running the prefix, and every scenario on tiny models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from measure import seconds, side_by_side, write

from kvtally.live import build, check
from kvtally.live.adapter import of_transformers
from kvtally.live.harness import as_found
from kvtally.live.scenarios import Bench
from kvtally.live.scenarios_steps import SCENARIOS
from kvtally.live.zoo import scaled
from kvtally.live.zoo_shrink import shrunk

SMOLLM2 = Path(os.environ.get("KVTALLY_SMOLLM2", Path(__file__).parents[1] / ".cache" / "smollm2"))
TOKENS = 64
STEPS = sum(scenario.group == "steps" for scenario in SCENARIOS)
TINY = ("llama", "gpt2", "mixtral", "qwen3_next", "gemma3n_text")


def generated(bench: Bench) -> None:
    """One cached generation: a token a call."""
    cache, ids = bench.need("fresh")(), bench.prompt()
    for k in range(bench.tokens):
        bench.extend(cache, ids[:, k : k + 1])


def rerun(bench: Bench) -> None:
    """The prefix of every token, without a cache."""
    for k in range(bench.tokens):
        bench.again(bench.prompt()[:, : k + 1])


def states(model: Any, work: Callable[[], object]) -> int:
    """Token states that `work` computes: the tokens of all its calls."""
    seen: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda _m, _a, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    try:
        work()
    finally:
        handle.remove()
    return sum(seen)


def real() -> Iterable[tuple[str, str, str]]:
    gguf = next(SMOLLM2.rglob("*.gguf"))
    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    bench = Bench(adapter=of_transformers(model), tokens=TOKENS)

    def checked() -> None:
        check(model, scenarios="steps", tokens=TOKENS)

    with as_found(model):
        what = f"`check --scenarios steps`, SmolLM2-135M, {TOKENS} tokens"
        mine, one, ratio = side_by_side(lambda: seconds(checked), lambda: seconds(lambda: generated(bench)), runs=3)
        yield what, f"{mine:.1f} s", f"{ratio:.2f}x one cached generation ({one:.1f} s)"
        again = seconds(lambda: rerun(bench))
        yield (
            "the prefix re-run for each token",
            f"{again:.1f} s",
            f"{again / one:.1f}x the cached generation; in all {STEPS} scenarios {STEPS * again / mine:.1f}x the check",
        )
        work, whole = states(model, checked), TOKENS * (TOKENS + 1) // 2
    yield (
        "token states of the same check",
        f"{work:,}",
        f"{STEPS} scenarios by re-running: {STEPS * whole:,}, {STEPS * whole / work:.1f}x (N/8 is {TOKENS / 8:g})",
    )


def tiny() -> Iterable[tuple[str, str, str]]:
    for name in TINY:
        model = scaled(build(shrunk(name), device="cpu"))
        calls: list[int] = []
        model.register_forward_pre_hook(lambda _m, _i, calls=calls: calls.append(1))
        spent = seconds(lambda model=model: check(model))
        yield (
            f"`check`, every scenario, tiny {name}",
            f"{spent:.1f} s",
            f"{len(calls)} calls, {1000 * spent / len(calls):.1f} ms each",
        )


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count() or 1)
    rows = [*real(), *tiny()]
    write("check", rows, f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(*(" | ".join(row) for row in rows), sep="\n")
