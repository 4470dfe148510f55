"""Console blocks of a Markdown file: what they say and what the commands really print.

`python tests/docs/blocks.py README.md …` writes the real output into the file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(body: str) -> list[tuple[str, str]]:
    """(command, printed text) of each `$ ` line of a console block."""
    parts = re.split(r"^\$ (.*)\n", body, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def printed(command: str) -> str:
    """What `command` prints on a terminal of 80 columns without colour, both streams, trailing blanks off."""
    words = shlex.split(command, comments=True)
    if words[0] != "kvtally":
        raise ValueError(f"{command!r}: expected a kvtally command")
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "kvtally", *words[1:]],
        capture_output=True, text=True, env=environment, cwd=ROOT, check=False,
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in (run.stdout + run.stderr).strip("\n").split("\n")) + "\n"


def regenerated(text: str) -> str:
    """The Markdown text, every console block holding what its commands print now."""

    def block(match: re.Match[str]) -> str:
        body = "\n".join(f"$ {command}\n{printed(command)}" for command, _ in commands(match["body"]))
        return f"```console\n{body}```"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(regenerated(Path(name).read_text()))
