"""Hostile files: contained, explained in a sentence, no process left, no file written; as root and as anyone."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kvtally
from kvtally.frontends.lab.grader import FAILED, PASSED
from lab.files import REFERENCE, named, upon_reference

HOSTILE = named("hostile")
NOBODY = 65534
AT_LARGE = ("kill_", "delete_", "chmod_", "make_")
SOURCE = Path(kvtally.__file__).parents[1]
#: Checks what stands on stdin, as another user where one is named; adopts whatever process gets orphaned by it.
CHECK = """
import ctypes, json, os, sys
uid = int(sys.argv[1])
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
sys.path.insert(0, sys.argv[2])
from kvtally.frontends.lab.grader import check
report = check(sys.stdin.read(), seed=1, seconds=2.0, without=json.loads(sys.argv[3]))
left = []
try:
    left.append(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    pass
print(json.dumps({**report.to_dict(), "left": left}))
"""
PYTHONS = [p for p in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3") if Path(p).exists()]


def python_for(uid: int) -> str | None:
    """A Python of 3.11 or newer that a user can run and that can read the package."""
    probe = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import kvtally; assert sys.version_info >= (3, 11)"
    for python in PYTHONS:
        as_user = {"user": uid, "group": uid, "extra_groups": []} if uid != os.getuid() else {}
        try:
            if (
                subprocess.run([python, "-c", probe], capture_output=True, check=False, cwd="/", **as_user).returncode
                == 0
            ):
                return python
        except OSError:
            continue
    return None


USERS = [os.getuid(), *([NOBODY] if os.getuid() == 0 else [])]


def checked(text: str, uid: int, without: list[str] | None = None) -> dict[str, Any]:
    """The report on a file, checked by a process of another user, or of this one."""
    python = python_for(uid)
    if python is None:
        pytest.skip(f"no Python of 3.11 or newer that user {uid} can run")
    as_user = {"user": uid, "group": uid, "extra_groups": []} if uid != os.getuid() else {}

    run = subprocess.run(
        [python, "-B", "-c", CHECK, str(uid), str(SOURCE), json.dumps(without or [])],
        input=text, capture_output=True, text=True, check=False, cwd="/", timeout=60, **as_user,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@cache
def isolated(uid: int) -> bool:
    """Whether a file checked by this user runs in a sandbox: what signals or deletes at large is run only there."""
    return str(checked(REFERENCE.read_text(), uid)["isolation"]).startswith("sandbox: ")


def promised(path: Path) -> list[str]:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split(" | ")


@pytest.fixture
def victim() -> Iterator[Path]:
    """A file that anyone may move, in a folder that anyone may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    file = folder / "victim"
    file.write_text("untouched")
    yield file
    shutil.rmtree(folder)


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("path", HOSTILE, ids=lambda p: p.stem)
def test_a_hostile_file_is_contained(path: Path, uid: int, victim: Path) -> None:
    if path.stem.startswith(AT_LARGE) and not isolated(uid):
        pytest.skip(f"no sandbox here for user {uid}, and this file signals or deletes whatever it can reach")
    os.chown(victim, uid, -1)
    victim.chmod(0o644)
    report = checked(upon_reference(path).replace("/tmp/kvtally-victim", str(victim)), uid)
    first, sentences = report["outcomes"][0], promised(path)
    if sentences != [""]:
        assert first["state"] == FAILED, first
        assert any(sentence in first["message"] for sentence in sentences), first["message"]
    assert victim.read_text() == "untouched" and victim.stat().st_mode & 0o777 == 0o644
    assert report["left"] == [], "a process was left behind"
    assert all(c.isprintable() or c == "\n" for c in f"{report['printed']}{first['message']}")
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/"):
        assert not Path(place, "KVTALLY_WAS_HERE").exists()


def test_there_are_enough_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nhostile files: {len(HOSTILE)}, each as user {' and '.join(map(str, USERS))}")  # noqa: T201
    assert len(HOSTILE) >= 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the levels are those of Linux")
@pytest.mark.parametrize("uid", USERS)
def test_the_level_that_was_reached_is_said_and_no_more(uid: int) -> None:
    right = REFERENCE.read_text()
    bare = str(checked(right, uid, ["namespaces", "landlock"])["isolation"])
    assert bare.startswith("not a sandbox (" + ("user nobody, limits" if uid == 0 else "limits") + "): the file could ")
    assert ("send signals" in bare) is (uid != 0)
    for without in (["namespaces"], ["landlock"], []):
        line = str(checked(right, uid, without)["isolation"])
        assert ("namespaces" in line) <= ("namespaces" not in without)
        assert ("Landlock" in line) <= ("landlock" not in without)
        assert line.startswith(("sandbox: ", "not a sandbox ("))
        assert line.startswith("sandbox: ") <= ("Landlock" in line or "empty root" in line)


def test_a_right_file_passes_as_every_user() -> None:
    for uid in USERS:
        report = checked(REFERENCE.read_text(), uid)
        assert {o["state"] for o in report["outcomes"]} == {PASSED}
