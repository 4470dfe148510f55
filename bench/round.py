"""Speed of `round`: a rounded pass against a plain teacher-forced one, on real weights."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import transformers
from measure import seconds, side_by_side, write

from kvtally.live.harness import as_found
from kvtally.live.rounding import LONGEST_CALL, round_caches
from kvtally.live.rounding_cache import Kept, kept
from kvtally.live.text_ids import text_ids

HERE = Path(__file__).parent
SMOLLM2 = Path(os.environ.get("KVTALLY_SMOLLM2", HERE.parent / ".cache" / "smollm2"))
TEXT = HERE.parent / "tests" / "data" / "lighthouse.txt"
TOKENS, RUNS = 256, 5  # tokens of the text
WAYS = {
    "bf16": kept("bf16"),
    "fp8_e4m3": kept("fp8_e4m3"),
    "int4": kept("int4"),
    "q4_0": kept("q4_0"),
    "int4, K by channel": kept("int4", group=32, axis="channel"),
}


def row(
    model: object, ids: torch.Tensor, name: str, ways: list[Kept], call: int = LONGEST_CALL
) -> tuple[str, str, str]:
    """An exact pass and one for each of `ways`, by the pass, against a plain teacher-forced one in calls of `call`."""

    def plain() -> None:
        with as_found(model):
            cache = transformers.DynamicCache(config=model.config)
            for start in range(0, TOKENS, call):
                model(ids[:, start : start + call], cache=cache)

    passes = len(ways) + 1
    mine, theirs, ratio = side_by_side(
        lambda: seconds(lambda: round_caches(model, ids, ways)) / passes, lambda: seconds(plain), runs=RUNS
    )
    versus = f"{ratio:.2f}x a plain pass in calls of {call} ({theirs:.2f} s)"
    return f"{name}: a pass of {passes}", f"{mine:.2f} s", versus


def main() -> None:
    file = next(iter(sorted(SMOLLM2.rglob("*.gguf"))))
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ids = text_ids(str(file), TEXT.read_text(encoding="utf-8"))[:, :TOKENS]
    rows = [row(model, ids, name, [way]) for name, way in WAYS.items()]
    grouped = WAYS["int4, K by channel"]  # is given its tokens a group at a time
    rows.append(row(model, ids, "int4, K by channel", [grouped], grouped.blocks))
    rows.append(row(model, ids, "all of these", list(WAYS.values())))
    write("round", rows, f"torch {torch.__version__}, transformers {transformers.__version__}; SmolLM2-135M in float32")


if __name__ == "__main__":
    main()
