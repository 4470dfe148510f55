"""Speed of `count`: start-up, the closed form, tracing against running untraced."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
import transformers
from measure import cpu_seconds, exponent, seconds, side_by_side, write
from torch.utils.flop_counter import FlopCounterMode

from kvtally import Attention, Decoder, Layer, Mlp, Pass, cached, count, lesson, uncached
from kvtally.live import build, run, trace
from kvtally.pure.catalogue import entry
from kvtally.pure.config import read_config
from kvtally.pure.count_executed import execute

SMOLLM2 = Path(os.environ.get("KVTALLY_SMOLLM2", Path(__file__).parents[1] / ".cache" / "smollm2"))
LLAMA_405B = Decoder(
    hidden_size=16384,
    vocab_size=128256,
    layers=(Layer(mixer=Attention(num_heads=128, num_kv_heads=8, head_dim=128), mlp=Mlp(width=53248)),) * 126,
)


def start_up() -> tuple[str, str, str]:
    kvtally = partial(cpu_seconds, [sys.executable, "-m", "kvtally", "count", "--format", "json"])
    python = partial(cpu_seconds, [sys.executable, "-c", "pass"])
    mine, bare, ratio = side_by_side(kvtally, python, runs=15)
    return "`kvtally count --format json`", f"{mine:.3f} s CPU", f"{ratio:.1f}x `python -c pass` ({bare:.3f} s)"


def closed() -> tuple[str, str, str]:
    ask = uncached(1_000_000, 1000)
    once, mtok, _ = side_by_side(
        lambda: seconds(lambda: count(LLAMA_405B, ask)), lambda: seconds(lambda: count(LLAMA_405B, uncached(100, 1000)))
    )
    lengths = [10**k for k in range(2, 10)]
    slope = exponent(lengths, [seconds(lambda n=n: count(LLAMA_405B, cached(n, n))) for n in lengths])
    return (
        "closed count, 126 layers, 1,000,000 tokens, 1,000 uncached passes",
        f"{1000 * once:.1f} ms",
        f"{once / mtok:.2f}x the same at 100 tokens; growth exponent with length {slope:+.2f}",
    )


def growth() -> Iterable[tuple[str, str, str]]:
    """Exponents: of the closed count with layers that differ, of the executed one with tokens."""
    sizes = [16, 64, 256]
    deep = {n: Decoder(hidden_size=64, vocab_size=100, layers=tuple(_layer(k) for k in range(n))) for n in sizes}
    times = [min(seconds(lambda n=n: count(deep[n], cached(100, 100))) for _ in range(5)) for n in sizes]
    last = f"{1000 * times[-1]:.1f} ms at {sizes[-1]:,}"
    yield "closed count by number of layers, all different", last, f"growth exponent {exponent(sizes, times):+.2f}"
    lengths = [25, 50, 100, 200]
    times = [min(seconds(lambda n=n: execute(lesson(8), cached(1, n))) for _ in range(3)) for n in lengths]
    last = f"{1000 * times[-1]:.0f} ms at {lengths[-1]:,}"
    yield "executed count of the lesson, d = 8, by tokens", last, f"growth exponent {exponent(lengths, times):+.2f}"


def _layer(k: int) -> Layer:
    return Layer(mixer=Attention(num_heads=4, num_kv_heads=2, head_dim=16), mlp=Mlp(width=48 + k))


def against_flop_counter() -> tuple[str, str, str]:
    facts = entry("llama-3.1-8b")["config"]
    model, decoder, ask = build(facts), read_config(facts), [Pass(new=256, logits=256)]

    def flops() -> None:
        with FlopCounterMode(display=False):
            run(model, ask)

    mine, theirs, ratio = side_by_side(lambda: seconds(lambda: count(decoder, ask)), lambda: seconds(flops), runs=5)
    return (
        "closed count of Llama-3.1-8B, 256 tokens",
        f"{1000 * mine:.2f} ms",
        f"{ratio:.4f}x `FlopCounterMode` on the meta device ({1000 * theirs:.0f} ms)",
    )


def tracing() -> Iterable[tuple[str, str, str]]:
    gguf = next(SMOLLM2.rglob("*.gguf"))
    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    decoder = read_config(model.config.to_dict())
    for name, ask in (("cached, 32 + 32 tokens", cached(32, 32)), ("uncached, 16 + 8 tokens", uncached(16, 8))):
        traced, plain, ratio = side_by_side(
            lambda ask=ask: seconds(lambda: trace(model, ask, decoder)),
            lambda ask=ask: seconds(lambda: run(model, ask)),
        )
        yield f"SmolLM2-135M traced, {name}", f"{traced:.2f} s", f"{ratio:.2f}x untraced ({plain:.2f} s)"


if __name__ == "__main__":
    rows = [start_up(), closed(), *growth(), against_flop_counter(), *tracing()]
    write("count", rows, f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(*(" | ".join(row) for row in rows), sep="\n")
