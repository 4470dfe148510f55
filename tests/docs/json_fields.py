"""The page docs/json.md: every field of what `--format json` prints, from real answers.

`python tests/docs/json_fields.py` writes it. A field that is in none of the answers below fails a test.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "json.md"
TRACE = Path(".cache") / "trace.jsonl"  # below ROOT, where commands run
BEFORE = Path(".cache") / "before.jsonl"
ROWS = [(0, [1, 2, 3]), (1, [1, 2, 4]), (400, [1, 2, 3, 5]), (401, [6])]
LOGGED = "GPU KV cache size: 345,600 tokens"
ASKED = {  # of each verb, questions whose answers show every field between them
    "count": ("count gpt2 --prompt 9 --new 3", "count gpt2 --edit-at 5 --prompt 9", "count --lengths 10,20",
              "count gpt2 --turns 5+3,2+2", "count gpt2 --chunk 4 --prompt 9",
              "count gemma-2-9b --against executed --prompt 5 --new 2", "count deepseek-v3",
              "count t5-base --source 5"),
    "size": ("size llama-3.1-8b --memory 80GiB", "size gemma-3-27b --tokens 100 --weights 1GiB --memory 80GiB",
             "size deepseek-v3", "size gpt2 --roofline --fast-memory 1MiB", "size gpt2 --block-size 16",
             "size mixtral-8x7b --kv-cache-dtype fp8 --tensor-parallel-size 2",
             "size gpt2 --tokens 20 --engine transformers --measure"),
    "size --explain": (f"size llama-3.1-8b --explain '{LOGGED}'",),
    "facts": ("facts gemma-2-9b", "facts docs/described.json", "facts deepseek-v3", "facts t5-base --source 5",
              "facts mixtral-8x7b"),
    "models": ("models",),
    "check": ("check llama --scenarios steps,edit",),
    "check --zoo": (f"check --zoo --only bloom --against {BEFORE}",),
    "round --dial": ("round --dial",),
    "round": ("round llama --tokens 36 --kv-cache-dtype int8,int4", "round llama --tokens 8 --kv-cache-dtype fp32"),
    "replay": (f"replay {TRACE}", f"replay {TRACE} --model gpt2 --by session --policy lru,belady --capacity 2",
               f"replay {TRACE} --replicas 2"),
    "zoo": ("zoo --only llama",),
}  # fmt: skip
NAMED = {"conventions", "groups", "within", "coarser"}  # objects whose keys are data, not fields
HEAD = """# JSON

Every verb that answers with numbers takes `--format json`, and prints the record that Python has: exact integers,
bytes in bytes, times in seconds. This page is written from real answers by `python tests/docs/json_fields.py`; a test
asks again, and fails where an answer has a field that is not here. `[]` is each of a list, `{}` each value of an object
whose keys are data, `null` means that it does not apply.

`lab check --format json` prints the record of the grader, `explore` a page.
"""


def written() -> None:
    """What is asked about: a trace of four requests in the format of Mooncake, and a row of an earlier check."""
    lines = [
        {"timestamp": 1000 * at, "input_length": 512 * len(ids), "output_length": 9, "hash_ids": ids}
        for at, ids in ROWS
    ]
    (ROOT / TRACE).parent.mkdir(exist_ok=True)
    (ROOT / TRACE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = {"name": "bloom", "model": "BloomForCausalLM", "built": {"ok": True, "note": ""}, "found": []}
    row |= {"ran": {"ok": True, "note": ""}, "groups": {"static": "rounding"}, "transformers": "5.0.0"}
    (ROOT / BEFORE).write_text(json.dumps(row) + "\n")


def answers(question: str) -> Any:
    """What a command prints as JSON; exit code 1 is an answer as well."""
    written()
    words = [sys.executable, "-m", "kvtally", *shlex.split(question), "--format", "json"]
    run = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode > 1:
        raise ValueError(f"kvtally {question}: {run.stderr}")
    return json.loads(run.stdout)


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is neither an object nor a list."""
    if isinstance(value, dict):
        named = path.rpartition(".")[2] in NAMED
        for key, inner in value.items():
            yield from fields(inner, f"{path}.{{}}" if named else f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner, f"{path}[]")
    else:
        yield path, value


def kind(value: Any) -> str:
    """The JSON type of a value."""
    return {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}[type(value)]


def table(verb: str) -> dict[str, dict[str, Any]]:
    """Of each field of a verb's answers its types, each with the first value that had it."""
    found: dict[str, dict[str, Any]] = {}
    for question in ASKED[verb]:
        for path, value in fields(answers(question)):
            found.setdefault(path, {}).setdefault(kind(value), value)
    return found


def shown(value: Any) -> str:
    """A value as it stands in JSON, not longer than a cell should be."""
    text = json.dumps(value, ensure_ascii=False).replace("|", "\\|")
    return text if len(text) <= 40 else text[:39] + "…"


def section(verb: str) -> str:
    """The part of the page on one verb."""
    rows = []
    for path, kinds in table(verb).items():
        value = next((v for v in kinds.values() if v is not None), None)
        rows.append(f"| `{path}` | {', '.join(sorted(kinds))} | `{shown(value)}` |")
    asked = "; ".join(f"`kvtally {q.replace(str(TRACE), 'TRACE').replace(str(BEFORE), 'BEFORE')}`" for q in ASKED[verb])
    return "\n".join(
        [f"## {verb}", "", f"From {asked}.", "", "| field | type | for example |", "|---|---|---|", *rows, ""]
    )


def known(verb: str) -> dict[str, set[str]]:
    """The fields of a verb that the page lists, with their types."""
    part = PAGE.read_text().split(f"\n## {verb}\n", 1)[1].split("\n## ", 1)[0]
    rows = [row.split(" | ") for row in part.splitlines() if row.startswith("| `")]
    return {row[0].strip("| `"): set(row[1].split(", ")) for row in rows}


def main() -> None:
    PAGE.write_text("\n".join([HEAD, *map(section, ASKED)]))


if __name__ == "__main__":
    main()
