"""A random sample of the mutants of core and pure, each run against the tests that reach it.

`python tests/mutants.py 400 [seed]` works on a copy of the tree, and prints what survived. mutmut makes the mutants and
finds out which tests reach which function; here a process that has collected the tests once forks for each mutant. One
that lives goes on to the doctests of its module, and then to the quickest tests that reach its module, in a process of
its own: a function that is called while modules are imported is only there a mutant. KVTALLY_MUTANTS says how many run
at a time.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COPY = ROOT / ".cache" / "mutants"
TREE = COPY / "mutants"  # of mutmut: every function as it is and in all its mutants, chosen by a variable
COPIED = ("src", "tests", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md", "LICENSE")
FIRST = "kvtally.core.span.x_triangle__mutmut_1"  # asked for to have all of them made and the tests timed
FAILED = (1, 2)  # of pytest: a test fails, or a file cannot be collected
OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:kvtally")
LONGEST = 600  # seconds that a mutant may take
SOME = 60  # seconds of tests that are run once more, from the start
KILLED = "killed"


def copy() -> None:
    """The tree, in an empty folder of its own."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, COPY / name)


def settings() -> dict[str, str]:
    """Where tests on a copy find what lies beside the tree."""
    return {
        "KVTALLY_SHARED": str((ROOT / os.environ.get("KVTALLY_SHARED", "../shared")).resolve()),
        "KVTALLY_SMOLLM2": os.environ.get("KVTALLY_SMOLLM2", str(ROOT / ".cache" / "smollm2")),
        "OMP_NUM_THREADS": "1",
        "MUTANT_UNDER_TEST": "",
    }


def names() -> list[str]:
    """Every mutant."""
    files = sorted(TREE.rglob("*.meta"))
    return sorted(name for file in files for name in json.loads(file.read_text())["exit_code_by_key"])


def by_file(stats: dict[str, Any], function: str) -> list[list[str]]:
    """The tests that reach a function, file by file, the files of its own module first, then the quickest."""
    files: dict[str, list[str]] = {}
    for test in stats["tests_by_mangled_function_name"].get(function, ()):
        if not test.startswith("src/"):
            files.setdefault(test.split("::")[0], []).append(test)
    spent, own = stats["duration_by_test"], function.split(".")[2].split("_", maxsplit=1)[0]
    return sorted(files.values(), key=lambda tests: (own not in tests[0], sum(spent.get(t, 0) for t in tests)))


def module_of(mutant: str) -> str:
    """The file of a mutant, or of a function."""
    return "/".join(["src", *mutant.split(".")[:3]]) + ".py"


def from_the_start(mutant: str, stats: dict[str, Any]) -> bool:
    """Whether tests that reach the module pass where the mutant is there before anything is imported: the quickest."""
    reach, spent = stats["tests_by_mangled_function_name"], stats["duration_by_test"]
    reached = {test for function in reach if module_of(function) == module_of(mutant) for test in reach[function]}
    files: Counter[str] = Counter()
    for test in reached:
        files[test.split("::")[0]] += spent.get(test, 0)
    quickest = sorted((file for file in files if not file.startswith("src/")), key=lambda file: files[file])
    some = [file for k, file in enumerate(quickest) if sum(files[f] for f in quickest[: k + 1]) <= SOME]
    command = [sys.executable, "-m", "pytest", *OPTIONS, *some]
    done = subprocess.run(command, env=os.environ | {"MUTANT_UNDER_TEST": mutant}, capture_output=True, check=False)
    return done.returncode not in FAILED


def outcome(mutant: str, stats: dict[str, Any]) -> int:
    """Runs in a child: 0 where no test fails with the mutant in place."""
    import pytest

    os.environ["MUTANT_UNDER_TEST"] = mutant
    signal.alarm(LONGEST)
    for tests in by_file(stats, mutant.split("__mutmut_", maxsplit=1)[0]):
        code = pytest.main([*OPTIONS, *tests])
        if code == pytest.ExitCode.USAGE_ERROR:  # a name that the command line cannot say
            code = pytest.main([*OPTIONS, tests[0].split("::", maxsplit=1)[0]])
        if code in FAILED:
            return 1
    doctests = pytest.main([*OPTIONS, "--doctest-modules", module_of(mutant), "-k", "not mutmut"])
    return int(doctests in FAILED or not from_the_start(mutant, stats))


def forked(mutant: str, stats: dict[str, Any]) -> int:
    """The process that runs one mutant, its output thrown away."""
    if pid := os.fork():
        return pid
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1), os.dup2(silence, 2)
    code = 1
    with suppress(BaseException):
        code = outcome(mutant, stats)
    os._exit(code)


def run(sample: list[str], stats: dict[str, Any]) -> dict[str, str]:
    """What became of each mutant."""
    running: dict[int, str] = {}
    became: dict[str, str] = {}
    at_once = int(os.environ.get("KVTALLY_MUTANTS", "2"))
    for mutant in [*sample, *[""] * at_once]:
        if running and (not mutant or len(running) >= at_once):
            pid, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            became[running.pop(pid)] = "survived" if code == 0 else KILLED if code > 0 else f"signal {-code}"
            sys.stdout.write(f"\r{len(became)} of {len(sample)}: {dict(Counter(became.values()))} ")
            sys.stdout.flush()
        if mutant:
            running[forked(mutant, stats)] = mutant
    return became


def main(size: int, seed: int) -> None:
    os.environ |= settings()
    copy()
    mutmut = [sys.executable, "-m", "mutmut", "run", "--max-children", "2", FIRST]
    done = subprocess.run(mutmut, capture_output=True, text=True, cwd=COPY, check=False)
    if not (TREE / "mutmut-stats.json").exists():
        sys.exit(f"mutmut made no statistics: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    os.chdir(TREE)
    os.environ["PYTHONPATH"] = str(TREE / "src")  # not sooner: a folder not yet there stays unseen
    sys.path[:0] = [str(TREE / "src"), str(TREE / "tests")]
    stats = json.loads(Path("mutmut-stats.json").read_text())
    import pytest

    tests = {test.split("::")[0] for tests in stats["tests_by_mangled_function_name"].values() for test in tests}
    pytest.main([*OPTIONS, "--collect-only", "-q", *sorted(t for t in tests if not t.startswith("src/"))])
    known = names()
    became = run(random.Random(seed).sample(known, min(size, len(known))), stats)
    survivors = sorted(name for name, how in became.items() if how == "survived")
    sys.stdout.write("".join(f"\nsurvived: {name}" for name in survivors))
    sys.stdout.write(f"\n{len(became)} of {len(known)} mutants, seed {seed}: {dict(Counter(became.values()))}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
