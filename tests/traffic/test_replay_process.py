"""`kvtally replay` as a process: interrupted, given far too long a line, watched on a terminal."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kvtally.traffic.read import read

INTERRUPTED = 130
REPLAY = (sys.executable, "-m", "kvtally", "replay")


def a_trace(requests: int = 300, blocks: int = 200) -> bytes:
    """Ids in no order, so that the file written is longer than a pipe holds."""
    ids = list(range(requests * blocks))
    random.Random(1).shuffle(ids)
    return b"".join(
        json.dumps({"timestamp": n, "input_length": 16 * blocks, "block_size": 16,
                    "hash_ids": ids[n * blocks : (n + 1) * blocks]}).encode() + b"\n"
        for n in range(requests)
    )  # fmt: skip


def started(folder: Path, *words: str) -> tuple[subprocess.Popen[str], Path]:
    """The process, and the pipe that it reads its trace from."""
    pipe = folder / "trace"
    os.mkfifo(pipe)
    process = subprocess.Popen([*REPLAY, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
    return process, pipe


def said(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def test_interrupted_while_it_reads(tmp_path: Path) -> None:
    process, pipe = started(tmp_path, "convert", "trace", "--to", "made.parquet")
    with pipe.open("wb", buffering=0) as trace:  # opens when the process reads
        trace.write(a_trace(2))
        process.send_signal(signal.SIGINT)
        assert said(process) == (INTERRUPTED, "kvtally: interrupted\n")
    assert [file.name for file in tmp_path.iterdir()] == ["trace"]


def test_interrupted_while_it_converts(tmp_path: Path) -> None:
    """Whenever it is met: what was there stays, or the whole file is there; no half of it under any name."""
    process, pipe = started(tmp_path, "convert", "trace", "--to", "made.parquet")
    made, half = tmp_path / "made.parquet", tmp_path / f"made.parquet.{process.pid}.part"
    made.write_text("what was there")
    pipe.write_bytes(a_trace(blocks=2000))
    while process.poll() is None and not half.exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    code, err = said(process)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["made.parquet", "trace"]
    if code == INTERRUPTED:
        assert err.endswith("kvtally: interrupted\n")
        assert made.read_text() == "what was there"
    else:
        assert code == 0
        assert read([str(made)]).accesses == 300 * 2000


@pytest.mark.parametrize(("words", "half"), [("--out made", "made/replay.json"), ("--html r.html", "r.html")])
def test_interrupted_while_it_writes_its_answer(tmp_path: Path, words: str, half: str) -> None:
    process, pipe = started(tmp_path, "trace", *words.split())
    (tmp_path / "made").mkdir()
    waiting = tmp_path / f"{half}.{process.pid}.part"
    os.mkfifo(waiting)  # opens for writing when somebody reads: nobody does
    pipe.write_bytes(a_trace(3))
    assert process.stdout is not None
    assert process.stdout.readline() == "What would a prefix cache save on this traffic?\n"
    process.send_signal(signal.SIGINT)
    assert said(process) == (INTERRUPTED, "kvtally: interrupted\n")
    left = {file.name for file in (*tmp_path.iterdir(), *(tmp_path / "made").iterdir())}
    assert left - {waiting.name} == {"made", "trace"}  # the pipe is ours, and may not have been met yet


def measured(code: str) -> tuple[str, int]:
    """What the code prints, and the most memory it took, in MiB.

    Linux counts a process that is started by a larger one as large in `ru_maxrss`; `VmHWM` is its own.
    """
    tail = "; print(next(int(s.split()[1]) for s in open('/proc/self/status') if s.startswith('VmHWM')) // 1024)"
    run = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=True)
    *lines, most = run.stdout.splitlines()
    return "\n".join(lines), int(most)


def test_a_line_of_two_gigabytes_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    good, name = a_trace(1, 2), "t.jsonl"
    with (tmp_path / name).open("wb") as file:
        file.write(good)
        file.seek(2**31, os.SEEK_CUR)  # a hole: bytes of 0 that take no place
        file.write(b"\n" + good)
    read = "from kvtally.traffic.read_lines import Bad, records; bad = Bad(skip=True); "
    found, most = measured(f"{read}print(len(list(records({str(tmp_path / name)!r}, bad))), bad.count, bad.first)")
    assert found == f"2 1 {tmp_path / name}:2: a line of more than 256 MiB, expected a request"
    assert most < 1000  # the longest line twice while it grows, and the interpreter


def on_a_terminal(words: Sequence[str], folder: Path) -> str:
    """What a process writes to stderr where that is a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen([*REPLAY, *words], stderr=its, stdout=subprocess.DEVNULL, cwd=folder)
    os.close(its)
    shown = b""
    try:
        while some := os.read(ours, 1 << 16):
            shown += some
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(ours)
    assert process.wait(timeout=120) == 0
    return shown.decode()


def test_a_bar_on_a_terminal_is_wiped_off_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(a_trace())
    shown = on_a_terminal(["t.jsonl"], tmp_path)
    assert "reading t.jsonl  [" in shown
    assert " s to go" in shown
    assert "counting " in shown
    assert shown.endswith(" " * 75 + "\r")
    assert max(map(len, shown.split("\r"))) <= 75
