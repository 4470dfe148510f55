"""Speed of reading configs: the models of the catalogue, read to Decoders."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

from measure import cpu_seconds, seconds, side_by_side, write

from kvtally.pure import catalogue
from kvtally.pure.config import read_config

CONFIGS = [catalogue.entry(name)["config"] for name in catalogue.names()]
TEXTS = [json.dumps(config) for config in CONFIGS]


def read_all() -> None:
    for config in CONFIGS:
        read_config(config, source=512 if config["model_type"] == "t5" else None)


def parse_all() -> None:
    for text in TEXTS:
        json.loads(text)


def once() -> tuple[str, str, str]:
    reading, parsing, ratio = side_by_side(lambda: seconds(read_all), lambda: seconds(parse_all), runs=15)
    each = 1000 * reading / len(CONFIGS)
    return (
        f"`read_config`, {len(CONFIGS)} configs of the catalogue",
        f"{each:.2f} ms each",
        f"{ratio:.0f}x parsing them as JSON ({1e6 * parsing / len(CONFIGS):.0f} µs each)",
    )


def first() -> tuple[str, str, str]:
    command = [sys.executable, "-m", "kvtally", "facts", "gpt2", "--format", "json"]
    facts, bare, ratio = side_by_side(
        partial(cpu_seconds, command), partial(cpu_seconds, [sys.executable, "-c", "pass"]), runs=9
    )
    return "`kvtally facts gpt2 --format json`", f"{facts:.3f} s CPU", f"{ratio:.1f}x `python -c pass` ({bare:.3f} s)"


def zoo() -> tuple[str, str, str]:
    names = "llama,gemma2,mixtral,mamba2,deepseek_v3,qwen3_next,bart,lfm2"
    command = [sys.executable, "-m", "kvtally", "zoo", "-n", "2", "--only"]
    eight, one, ratio = side_by_side(partial(_wall, [*command, names]), partial(_wall, [*command, "llama"]), runs=3)
    return "`kvtally zoo -n 2`, eight architectures", f"{eight:.1f} s", f"{ratio:.1f}x one ({one:.1f} s)"


def _wall(command: list[str]) -> float:
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


if __name__ == "__main__":
    rows = [once(), first(), zoo()]
    write("config", rows, "no other package for the first two")
    print(*(" | ".join(row) for row in rows), sep="\n")
