"""Files and streams that cannot be written or read: one sentence, the right exit code, nothing lost or half-written."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kvtally.core.errors import InputError, UnreadableError
from kvtally.frontends.cli import main
from kvtally.frontends.output import whole, write_whole

LONG = "x" * 300
WRITERS = {
    "--html": ("count --new 2 --html", "size gpt2 --html"),
    "--plot": ("size gpt2 --plot",),
    "--out": ("explore --no-open --out", "zoo --only llama --out", "zoo --only llama --format json --out"),
}
PLACES = {
    ".": "Is a directory",
    "/": "Is a directory",
    "/etc/passwd/x.html": "Not a directory",
    "/nowhere/x.svg": "No such file or directory",
    LONG: "File name too long",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of a command that must not print data."""
    code = main(words)
    out, err = capsys.readouterr()
    assert out == ""
    return code, err.removesuffix("\n")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[:20])
@pytest.mark.parametrize(("option", "words"), [(o, w) for o, several in WRITERS.items() for w in several])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_computed(
    option: str, words: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"{place}: cannot be written: {PLACES[place]}\n\nhint: choose another file for {option}"
    assert refused([*words.split(), place], capsys) == (3, message)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(("option", "words"), [(o, w) for o, several in WRITERS.items() for w in several])
def test_a_file_without_a_name_is_refused(option: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused([*words.split(), ""], capsys) == (2, f"`{option}` is '', expected a name")


def limited(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process that may write files of 2,000 bytes at most, the figures of coverage among them."""
    return subprocess.run(
        [sys.executable, "-B", "-m", "kvtally", *words], capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("COV")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "words", ["explore --no-open --out it.html", "size gpt2 --plot it.html", "count --html it.html", "lab start"]
)
def test_what_was_there_stays_where_the_disk_is_full(words: str) -> None:
    if words != "lab start":
        Path("it.html").write_text("mine")
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    run = limited(*words.split())
    assert (run.returncode, run.stderr.split("\n\n")[0].split(": ", 1)[1].strip()) == (
        3, "cannot be written: File too large",
    )  # fmt: skip
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_a_file_is_written_whole_or_not_at_all() -> None:
    Path("mine").write_text("old")
    with pytest.raises(UnreadableError, match=r"^mine: cannot be written: disk on fire$"), whole("mine") as part:
        part.write_text("half")
        raise OSError("disk on fire")
    with pytest.raises(KeyboardInterrupt), whole("mine") as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert [(path.name, path.read_text()) for path in Path().iterdir()] == [("mine", "old")]


def test_a_link_stays_a_link_and_a_long_name_is_no_hindrance() -> None:
    Path("link").symlink_to("target")
    for name, content in (("link", "text \udcff"), ("ä" * 127, b"\0")):
        write_whole(name, content)
    assert Path("link").is_symlink() and Path("target").read_text() == "text ?"
    assert Path("ä" * 127).read_bytes() == b"\0"
    assert len(list(Path().iterdir())) == 3


def test_a_device_and_a_pipe_are_written_in_place() -> None:
    write_whole("/dev/null", "gone")
    assert not Path("/dev/null").is_file()
    run = kvtally("count --new 2 --html /dev/stdout")
    assert run.returncode == 0 and "token states" in run.stdout and "</html>" in run.stdout


def test_an_empty_name_is_no_name() -> None:
    with pytest.raises(InputError, match=r"^`--out` is '', expected a name$"):
        write_whole("", "text", "--out")


def kvtally(words: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a shell, its streams redirected as `shell` says."""
    line = f"exec {sys.executable} -m kvtally {words} {shell}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


FULL = ("--help", "count --help", "lab", "lab --help", "lab check --help", "lab start zz", "models", "facts gpt2",
        "explore --no-open --out x.html", "zoo --help", "check --help")  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", FULL)
def test_a_full_disk_is_said_in_one_line(words: str) -> None:
    run = kvtally(words, ">/dev/full")
    assert (run.returncode, run.stderr) == (3, "stdout: cannot be written: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_error_that_cannot_be_said_keeps_its_exit_code() -> None:
    assert kvtally("count --prompt 0", "2>/dev/full").returncode == 2


CLOSED = [
    ("count gpt2", ">&-", 3, "stdout: cannot be written: Bad file descriptor\n"),
    ("count --help", ">&-", 3, "stdout: cannot be written: Bad file descriptor\n"),
    ("count gpt2", "2>&-", 0, ""),
    ("count --prompt 0", "2>&-", 2, ""),
    ("count gpt2", "<&- 2>&-", 0, ""),
    ("replay -", "<&-", 2, "no requests, expected at least one\n"),
    ("lab reset x", "<&-", 2, "start over? There is no terminal to ask on\n\nhint: say it with --yes\n"),
]


@pytest.mark.parametrize(("words", "shell", "code", "message"), CLOSED)
def test_a_closed_stream_is_no_traceback(words: str, shell: str, code: int, message: str) -> None:
    if words.startswith("replay"):
        pytest.importorskip("pyarrow")
    run = kvtally(words, shell)
    assert (run.returncode, run.stderr) == (code, message)


@pytest.mark.parametrize("shell", ["<&-", "</dev/null"])
def test_a_line_to_explain_that_is_not_there(shell: str) -> None:
    closed = kvtally("size gpt2 --explain -", shell)
    assert closed.returncode == 2 and closed.stderr.startswith("--explain: ")
    assert "Traceback" not in closed.stderr


def test_a_line_to_explain_need_not_be_utf_8() -> None:
    line = b"caf\xe9 GPU KV cache size: 290,864 tokens\n"
    words = [sys.executable, "-m", "kvtally", "size", "gpt2", "--explain", "-"]
    run = subprocess.run(words, input=line, capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"") and b"290,864" in run.stdout


def test_the_folder_of_replay_is_written_whole_or_not_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    row = {"timestamp": 0, "input_length": 32, "hash_ids": [0, 1], "block_size": 16}
    Path("t.jsonl").write_text(json.dumps(row) + "\n")
    for name in ("runs.parquet", "replay.json"):
        Path(name, name).mkdir(parents=True)
        assert main(["replay", "t.jsonl", "--out", name]) == 3
        assert capsys.readouterr().err.startswith(f"{name}/{name}: cannot be written: Is a directory")
        assert [path.name for path in Path(name).iterdir()] == [name]
    assert main(["replay", "t.jsonl", "--out", "/dev/null"]) == 3
    assert capsys.readouterr().err.startswith("/dev/null/replay.json: cannot be written: Not a directory")
    assert main(["replay", "t.jsonl", "--out", ""]) == 2
    assert capsys.readouterr().err == "`--out` is '', expected a name\n"
