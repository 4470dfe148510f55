"""`--engine ray`: the answers of a real cluster of two workers are those of one process, whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from kvtally.frontends.cli import main
from kvtally.traffic import cluster
from kvtally.traffic.canonical import write_parquet
from kvtally.traffic.requests import Requests

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'kvtally[ray]'")


@pytest.fixture(scope="module")
def two_workers() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'kvtally[ray]'")
    pytest.importorskip("pandas", reason="needs Ray Data: pip install 'kvtally[ray]'")
    told = {**cluster.SETTINGS, "AWS_EC2_METADATA_DISABLED": "true"}
    told |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    with pytest.MonkeyPatch.context() as environment:  # that of the workers, too
        for name, value in told.items():
            environment.setenv(name, value)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


def made(seed: int, many: int, *, start: float = 0.0) -> Requests:
    """Prompts that share beginnings, of several sessions and models, at times that other files fall between."""
    draw = np.random.default_rng(seed)
    ids: dict[tuple[int, ...], int] = {}
    words = [tuple(draw.integers(0, 3, int(draw.integers(0, 9))).tolist()) for _ in range(many)]
    paths = [[ids.setdefault(word[: d + 1], len(ids)) for d in range(len(word))] for word in words]
    plain = Requests.of(paths, block_size=16, time=[start + 7.0 * r for r in range(many)])
    return replace(
        plain,
        input_tokens=plain.input_tokens + draw.integers(0, 16, many),
        session=draw.integers(0, 4, many),
        model=draw.integers(0, 2, many),
        names={"session": ("a", "b", "c", "d"), "model": (f"m{seed}", "shared"), "tenant": ("",)},
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_parquet(made(1, 150), str(tmp_path / "one.parquet"))
    write_parquet(made(2, 90, start=3.0), str(tmp_path / "two.parquet"))
    return tmp_path


def answered(folder: Path, *words: str) -> dict[str, Any]:
    assert main(["replay", *words, "--out", str(folder / "told")]) == 0
    told: dict[str, Any] = json.loads((folder / "told" / "replay.json").read_text(encoding="utf-8"))
    return told


def test_a_cluster_says_what_one_process_says(files: Path, two_workers: None) -> None:
    """Two files whose requests fall between each other's, four caches that span both, larger blocks."""
    words = [f"file://{files}/*.parquet", "--cache-per", "model", "--replicas", "2", "--block-size", "32"]
    here, there = (answered(files, *words, "--by", "tenant", "--engine", engine) for engine in ("local", "ray"))
    assert here == there
    assert here["reuse"]["possible_blocks"] > 30
    assert here["why"]["edits"]["edited"] > 10


def test_a_worker_killed_in_the_middle_is_survived(
    files: Path, two_workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    died, replayed = str(files / "died"), cluster.replayed

    def dies_once(group: Any, **sizes: int) -> Any:
        try:
            os.close(os.open(died, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return replayed(group, **sizes)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    words = [str(files / "one.parquet"), "--replicas", "3", "--route", "round-robin", "--ttl", "5min"]
    here = answered(files, *words)
    monkeypatch.setattr(cluster, "replayed", dies_once)
    assert answered(files, *words, "--engine", "ray") == here
    assert Path(died).exists()


def test_a_bucket_is_read_here_and_on_a_cluster(files: Path, two_workers: None) -> None:
    """A real server that speaks S3; where it is comes with the address, as pyarrow takes it."""
    server = pytest.importorskip("moto.server", reason="needs a server that speaks S3: pip install 'moto[server]'")
    boto3 = pytest.importorskip("boto3")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    try:
        _, port = running.get_host_and_port()
        bucket = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
        bucket.create_bucket(Bucket="traces")
        for file in files.glob("*.parquet"):
            bucket.upload_file(str(file), "traces", f"day/{file.name}")
        store = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        address = f"s3://traces/day/*.parquet{store}"
        local = answered(files, str(files / "*.parquet"), "--cache-per", "tenant")
        for engine in ("local", "ray"):
            told = answered(files, address, "--cache-per", "tenant", "--engine", engine)
            assert told["reuse"] == local["reuse"]
            assert told["why"] == local["why"]
    finally:
        running.stop()


def test_without_ray_one_line_says_what_to_install(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["replay", str(files / "one.parquet"), "--engine", "ray"]) == 3
    assert capsys.readouterr().err == "`--engine ray` needs Ray Data\n\nhint: pip install 'kvtally[traffic,ray]'\n"


@needs_ray
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replicas", "2", "--route", "longest-prefix"], "`--route` is 'longest-prefix' and the blocks are on a"),
        (["--policy", "lru", "--capacity", "3"], "`--policy` or `--mode vllm` is given with `--engine ray`"),
    ],
)
def test_what_a_cluster_cannot_answer_is_refused(
    words: list[str], said: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(files / "one.parquet"), "--engine", "ray", *words]) == 2
    assert capsys.readouterr().err.startswith(said)


@needs_ray
def test_traces_that_were_not_converted_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "t.jsonl"
    other.write_text('{"token_ids": [1, 2], "timestamp": 1}\n')
    assert main(["replay", str(other), "--engine", "ray"]) == 2
    assert "t.jsonl: no converted trace, which is what `--engine ray` reads" in capsys.readouterr().err


def test_files_are_tenants_that_share_nothing(files: Path) -> None:
    names = [str(files / "one.parquet"), str(files / "two.parquet")]
    both = answered(files, *names, "--by", "tenant")
    alone = [answered(files, name) for name in names]
    assert {part["name"]: part["hits"] for part in both["parts"]} == {
        name: one["reuse"]["possible_blocks"] for name, one in zip(names, alone, strict=True)
    }
    assert any("ids are local to a file" in note for note in both["notes"])
