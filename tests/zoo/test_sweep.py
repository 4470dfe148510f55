"""Every architecture has a process of its own: whatever it does, the others and the results stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("transformers")

HERE = Path(__file__).parent
ZOO = (sys.executable, "-m", "kvtally", "zoo")


def test_a_child_that_misbehaves_is_one_row_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = tmp_path / "pid"
    told = subprocess.run([sys.executable, HERE / "bad_visits.py", found], capture_output=True, text=True, check=True)
    rows = json.loads(told.stdout)
    assert rows.pop("good") == {"ok": None, "note": ""}
    assert {row["ok"] for row in rows.values()} == {False}
    assert {name: row["note"] for name, row in rows.items()} == {
        "raises": "ValueError: no such luck and more",
        "vanishes": "ended by status 0 without an answer",
        "eats memory": "MemoryError",
        "sleeps": "took longer than 5 seconds",
        "starts another": "took longer than 5 seconds",
    }
    assert not _runs(int(found.read_text()))


def test_an_interrupt_keeps_what_is_done_and_the_next_run_goes_on_from_there(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    names = ["gpt2", "llama", "opt", "bloom", "gptj", "phi", "cohere", "olmo", "glm", "helium", "gemma", "falcon"]
    command = [*ZOO, "--only", ",".join(names), "--results", str(results)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (results.exists() and "\n" in results.read_text()):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        table, said = process.communicate()
    done = [json.loads(line)["name"] for line in results.read_text().splitlines()]
    assert process.returncode == 130, said
    assert 0 < len(done) < len(names)
    assert all(name in table for name in done)
    again = subprocess.run(
        [*ZOO, "--only", ",".join(done), "--results", str(results), "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stderr == ""  # nothing was run
    assert [row["name"] for row in json.loads(again.stdout)["rows"]] == sorted(done)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return state != "Z"
