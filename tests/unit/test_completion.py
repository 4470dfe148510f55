"""What a shell gets that asks kvtally for its completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kvtally.frontends.cli import kvtally


def asked(instruction: str, **words: str) -> str:
    environment = os.environ | {"_KVTALLY_COMPLETE": instruction} | words
    command = [sys.executable, "-m", "kvtally"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_asks_kvtally(shell: str) -> None:
    script = asked(f"{shell}_source")
    assert f"_KVTALLY_COMPLETE={shell}_complete" in script
    assert "_kvtally_completion" in script


def test_bash_takes_the_script() -> None:
    script = asked("bash_source") + "\ncomplete -p kvtally"
    run = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == "kvtally"


def test_a_verb_and_an_option_are_completed() -> None:
    verbs = asked("bash_complete", COMP_WORDS="kvtally c", COMP_CWORD="1").split()
    assert verbs == [f"plain,{verb}" for verb in sorted(kvtally.commands) if verb.startswith("c")]
    assert asked("bash_complete", COMP_WORDS="kvtally count --ke", COMP_CWORD="2").split() == ["plain,--kernel"]
