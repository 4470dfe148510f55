"""The zoo on a real Ray cluster of two workers, started on this machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def zoo(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvtally", "zoo", "--only", "gpt2,mamba", "--format", "json", "-n", "2", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_rows_from_ray_are_those_of_processes_here() -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'kvtally[ray]'")
    here, there = zoo(), zoo("--engine", "ray")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    rows = json.loads(there.stdout)["rows"]
    assert rows == json.loads(here.stdout)["rows"]
    assert [row["name"] for row in rows] == ["gpt2", "mamba"]


def test_an_unknown_engine_is_refused() -> None:
    told = zoo("--engine", "dask")
    assert told.returncode == 2
    assert told.stderr == "`--engine` is 'dask'; known: `local`, `ray`\n"
