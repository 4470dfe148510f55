"""`kvtally lab` as a learner types it: messages, exit codes, files left alone, formats, the same bytes for a seed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvtally.frontends.cli import main
from kvtally.frontends.lab import place
from kvtally.frontends.lab.steps import STEPS, seed_from
from lab.files import REFERENCE

FINISHED = REFERENCE.read_text()
SKELETON = REFERENCE.with_name("kv.py").read_text()
HALF_DONE = (
    "multiplications = 0\n\ndef mul(a, b):\n    global multiplications\n    multiplications += 1\n    return a + b\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the lesson was started, and the place to work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["lab", "start"]) == 0
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `kvtally lab words`."""
    capsys.readouterr()
    code = main(["lab", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_start_writes_the_skeleton_and_the_lesson(folder: Path) -> None:
    assert {p.name for p in folder.iterdir()} == {"kv.py", "LESSON.md", place.STATE}
    assert (folder / "kv.py").read_text() == SKELETON
    assert (folder / "LESSON.md").read_text().startswith("# A KV cache, counted")


def test_start_never_overwrites(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text("mine = 1\n")
    code, out, err = said(capsys, "start", ".")
    assert (code, out) == (2, "")
    assert err.startswith("kv.py is there already, and it is not overwritten\n\nhint: ")
    assert (folder / "kv.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("mine", ["mine\n", None])
def test_start_leaves_a_lesson_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mine: str | None
) -> None:
    lesson = tmp_path / "LESSON.md"
    if mine:
        lesson.write_text(mine)
    else:
        lesson.mkdir()
    code, out, err = said(capsys, "start", str(tmp_path))
    assert (code, out) == (2, "")
    assert err.startswith(f"{lesson} is there already, and it is not overwritten\n\nhint: move it away")
    assert [path.name for path in tmp_path.iterdir()] == ["LESSON.md"]
    assert not mine or lesson.read_text() == mine


def test_start_again_writes_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").unlink()
    assert said(capsys, "start")[0] == said(capsys, "start")[0] == 0
    assert (folder / "kv.py").read_text() == SKELETON


@pytest.mark.parametrize(("place", "reason"), [("/etc/passwd", "Not a directory"), ("x" * 300, "File name too long")])
@pytest.mark.parametrize("words", [["start"], ["reset", "--yes"]])
def test_a_folder_that_cannot_be_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], place: str, reason: str
) -> None:
    code, out, err = said(capsys, *words, place)
    assert (code, out) == (3, "") and err.startswith(place) and err.endswith(f"cannot be written: {reason}\n")


def test_reset_keeps_a_lesson_with_notes_and_makes_a_new_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "LESSON.md").write_text("my notes\n")
    assert said(capsys, "reset", "--yes")[:2] == (0, "kv.py is new\n")
    assert (folder / "LESSON.md").read_text() == "my notes\n"
    assert said(capsys, "reset", "--yes", "new/folder")[0] == 0
    assert (folder / "new" / "folder" / "kv.py").read_text() == SKELETON


def test_a_question_left_unanswered_is_an_interruption(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    code, _, err = said(capsys, "reset")
    assert (code, err.splitlines()[-1]) == (130, "kvtally: interrupted")


def test_reset_asks_and_keeps_what_was_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text("mine = 1\n")
    code, _, err = said(capsys, "reset")
    assert code == 2 and "hint: say it with --yes" in err
    assert (folder / "kv.py").read_text() == "mine = 1\n"
    code, out, _ = said(capsys, "reset", "--yes")
    assert (code, out) == (0, "kv.py is new; yours is kv-before-reset-1.py\n")
    assert (folder / "kv-before-reset-1.py").read_text() == "mine = 1\n"
    assert (folder / "kv.py").read_text() == SKELETON


def test_check_of_a_fresh_file_names_the_first_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "check", "--seed", "5")
    assert (code, err) == (1, "")
    assert (
        "kv.py, seed 5" in out
        and "Step 1 of 11, mul: still to be written" in out
        and "must show: 1 multiplication" in out
    )


def test_a_failing_step_shows_inputs_seed_and_both_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text(HALF_DONE)
    code, out, _ = said(capsys, "check", "--seed", "5")
    assert code == 1
    assert "value and count: that is the sum: mul returns the product a * b" in " ".join(out.split())
    assert "seed 5; the formula is 1:" in out and re.search(r"a = -?0\.\d+\n +b = -?0\.\d+\n +mul\(a, b\)", out)


def test_check_of_a_finished_file_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text(FINISHED)
    code, out, _ = said(capsys, "check")
    assert code == 0 and "All 11 steps of the lesson are done." in out
    assert place.read(folder).passed == tuple(step.name for step in STEPS)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("form", ["table", "json", "junit"])
def test_one_seed_gives_the_same_bytes_and_another_seed_others(folder: Path, form: str) -> None:
    (folder / "kv.py").write_text(HALF_DONE)

    def printed(seed: str) -> bytes:
        words = [sys.executable, "-m", "kvtally", "lab", "check", "--seed", seed, "--format", form]
        return subprocess.run(words, capture_output=True, check=False, cwd=folder).stdout

    assert printed("11") == printed("11") != printed("12")


@pytest.mark.parametrize("minor", [9, 10, 12, 13, 14])
def test_the_file_may_run_on_another_python(folder: Path, capsys: pytest.CaptureFixture[str], minor: int) -> None:
    python = shutil.which(f"python3.{minor}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no python3.{minor} here")
    (folder / "kv.py").write_text(FINISHED)
    code, out, _ = said(capsys, "check", "--python", python)
    assert code == 0, out


def test_a_name_gives_its_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "check", "--seed-from", "Ada")
    assert f"seed {seed_from('Ada')}\n" in out


def test_the_json_is_the_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text(FINISHED)
    code, out, _ = said(capsys, "check", "--format", "json", "--seed", "3")
    data = json.loads(out)
    assert code == 0 and data["seed"] == 3 and [o["number"] for o in data["outcomes"]] == list(range(1, 17))
    step = data["outcomes"][6]
    assert step["counter"] == step["seen"] == step["formula"]


@pytest.mark.parametrize(("text", "failures", "skipped"), [(SKELETON, 1, 15), (HALF_DONE, 1, 15), (FINISHED, 0, 0)])
def test_junit_is_what_its_readers_expect(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, failures: int, skipped: int
) -> None:
    (folder / "kv.py").write_text(text)
    _, out, _ = said(capsys, "check", "--format", "junit")
    root = ElementTree.fromstring(out)
    assert root.tag == "testsuites" and [child.tag for child in root] == ["testsuite"]
    suite = root[0]
    assert {child.tag for child in suite} == {"properties", "testcase"}
    cases = suite.findall("testcase")
    for element in (root, suite):
        assert set(element.attrib) == {"name", "tests", "failures", "errors", "skipped", "time"}
        counted = [int(element.attrib[name]) for name in ("tests", "failures", "errors", "skipped")]
        assert counted == [len(cases), len(suite.findall(".//failure")), 0, len(suite.findall(".//skipped"))]
        assert counted == [16, failures, 0, skipped]
    for case in cases:
        assert set(case.attrib) == {"classname", "name", "time"} and len(case) <= 1
        assert all(child.tag in ("failure", "skipped") and child.attrib["message"] for child in case)


def test_hints_say_more_each_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (said(capsys, "hint")[1] for _ in range(3))
    assert first.startswith("mul, hint 1 of 2: ") and second.startswith("mul, hint 2 of 2: ") and third == second


def test_a_solution_is_shown_only_once_its_step_has_passed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "show", "mul")
    assert (code, out) == (2, "") and err.startswith("step `mul` has not passed")
    (folder / "kv.py").write_text(FINISHED)
    assert said(capsys, "check", "--step", "mul")[0] == 0
    code, out, _ = said(capsys, "show", "1")
    assert code == 0 and out.startswith("def mul(a: float, b: float) -> float:\n    global multiplications\n")
    assert said(capsys, "show", "dot")[0] == 2


def test_a_single_step_by_number_or_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text(FINISHED)
    for asked in ("7", "run_with_cache"):
        code, out, _ = said(capsys, "check", "--step", asked)
        assert code == 0 and "Passed: run_with_cache." in out and "attend" not in out


def test_the_record_to_hand_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text(FINISHED)
    code, out, _ = said(capsys, "report", "--seed", "4")
    assert code == 0
    assert "11 of 11 steps and 5 of 5 bonus steps passed, seed 4." in out
    assert "| 100 | 62,700,800 | 1,875,200 | 33.4 |" in out and "12,800 elements, 25,600 bytes (25.0 KiB)" in out
    code, out, _ = said(capsys, "report", "--seed", "4", "--format", "json")
    assert code == 0 and json.loads(out)["strict"] is True and json.loads(out)["memory"] == [12800, 25600]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("check", "nowhere.py"), 3, "nowhere.py: no such file\n\nhint: `kvtally lab start DIR` writes one"),
        (("check", "."), 3, ".: cannot be read: "),
        (("check", "--step", "99"), 2, "no step `99`\n\nhint: known: 1 mul, "),
        (("check", "--seed", "x"), 2, "`--seed` is 'x', expected an integer of at least 0\n\nhint: --seed-from"),
        (("check", "--seed", "9" * 5000), 2, f"`--seed` is '{'9' * 40}…', expected an integer of at least 0"),
        (("check", "--seed", "-1"), 2, "`--seed` is -1, expected an integer of at least 0"),
        (("check", "--seed", "1", "--seed-from", "Ada"), 2, "`--seed` and `--seed-from` are both given"),
        (("check", "--seed-from", " "), 2, "`--seed-from` is empty, expected a name"),
        (
            ("check", "--python", "no-such-python"),
            2,
            "`--python` is 'no-such-python', expected a Python of 3.9 or newer",
        ),
        (("check", "--python", "cat"), 3, shutil.which("cat") + " does not run the file: "),
        (("check", "--watch", "nowhere.py"), 3, "nowhere.py: no such file"),
        (("check", "--format", "xml"), 2, "`--format` is 'xml'; known: `json`, `junit`, `table`"),
        (("check", "--watch", "--format", "json"), 2, "`--watch` and `--format json` are both given"),
        (("report", "--format", "csv"), 2, "`--format` is 'csv'; known: `json`, `md`"),
        (("show", "nothing"), 2, "no step `nothing`"),
        (("hint", "elsewhere/kv.py"), 3, "elsewhere: no lesson was started here"),
    ],
)
def test_a_wrong_question_is_answered_with_a_hint(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, error: str
) -> None:
    got, out, err = said(capsys, *words)
    assert (got, out) == (code, "") and err.startswith(error), err


@pytest.mark.parametrize(
    "text",
    ["not json", "[]", '{"passed": ["nothing"], "hints": {}}', '{"passed": [[1]], "hints": {}}', "[" * 100_000,
     '{"passed": [], "hints": {"mul": "x"}}', '{"passed": [], "hints": {"mul": -7}}',
     '{"passed": [], "hints": {"mul": true}}', '{"passed": [], "hints": {"mul": ' + "9" * 5000 + "}}"],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_spoilt_place_is_said(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (folder / place.STATE).write_text(text)
    code, _, err = said(capsys, "hint")
    assert code == 3 and place.STATE in err and "to forget the place" in err


def test_a_file_that_is_no_python_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kv.py").write_text("def mul(a, b)\n    return a * b\n")
    code, out, _ = said(capsys, "check")
    assert (
        code == 1 and "kv.py cannot be loaded: SyntaxError: expected ':'" in out and "(line 1: `def mul(a, b)`)" in out
    )
    (folder / "kv.py").write_bytes(b"\xff\xfe")
    assert said(capsys, "check")[0] == 3


def on_a_terminal(
    folder: Path,
    *words: str,
    environment: dict[str, str],
    each_time: str = "",
    then: Sequence[Callable[[], object]] = (),
) -> tuple[int, str]:
    """(exit code, text) of `kvtally lab words` on a terminal of 80 columns.

    Each time that `each_time` comes, the next of `then` is called.
    """
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kvtally", "lab", *words], stdin=follower, stdout=follower, stderr=follower, cwd=folder,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment}, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )  # fmt: skip
    os.close(follower)
    text, fresh, waiting = "", "", list(then)
    while True:
        try:
            data = os.read(leader, 65536).decode()
        except OSError:  # the other side is closed
            break
        text, fresh = text + data, fresh + data
        if waiting and each_time in fresh:
            fresh = ""
            waiting.pop(0)()
            if not waiting:
                os.write(leader, b"\x03")
    os.close(leader)
    return process.wait(timeout=30), text


def test_watch_checks_again_at_a_save_and_ctrl_c_ends_it(folder: Path) -> None:
    def save() -> None:
        (folder / "kv.py").write_text(FINISHED)

    code, text = on_a_terminal(
        folder, "check", "--watch", environment={}, each_time="Ctrl-C ends it", then=(save, lambda: None)
    )
    assert code == 130
    assert text.index("Step 1 of 11, mul: still to be written") < text.index("All 11 steps of the lesson are done.")
    assert "Traceback" not in text


@pytest.mark.parametrize(("environment", "coloured"), [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_colour_only_where_it_is_wanted(folder: Path, environment: dict[str, str], coloured: bool) -> None:
    (folder / "kv.py").write_text(FINISHED)
    code, text = on_a_terminal(folder, "check", environment=environment)
    assert code == 0 and ("\x1b[32m" in text) is coloured
    assert max(len(re.sub(r"\x1b\[\d+m", "", line)) for line in text.splitlines()) <= 80


def test_ctrl_c_in_an_endless_loop_ends_it(folder: Path) -> None:
    (folder / "kv.py").write_text("print('looping', flush=True)\nwhile True:\n    pass\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "kvtally", "lab", "check"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while children.exists() and not children.read_text():  # until the file is being run
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"kvtally: interrupted\n")


def test_count_loads_nothing_of_the_lesson() -> None:
    count = "main(['count', '--format', 'json'])"
    code = f"import sys; from kvtally.frontends.cli import main; {count}; print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "kvtally.frontends.lab" not in out.splitlines()[-1]


def test_the_lesson_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0 and "kvtally lab start" in capsys.readouterr().out
    code, out, _ = said(capsys)
    assert code == 0
    assert all(verb in out for verb in ("start", "check", "hint", "show", "reset", "report"))
