"""Wrong questions to `kvtally check`: every message pinned, exit code and all."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from kvtally.frontends.cli import main
from kvtally.live.checked_model import load

GROUPS = "`all`, `power`, `steps`, `static`, `padding`, `edit`, `batch`, `reuse`, `window`, `generate`"
PINNED = [
    ("check", 2, "MODEL is missing, expected one, or `--zoo`\n\nhint: kvtally check llama"),
    ("check llama --format xml", 2, "`--format` is 'xml'; known: `json`, `md`, `table`"),
    ("check llama --dtype int8", 2, "`--dtype` is 'int8'; known: `bfloat16`, `float16`, `float32`, `float64`"),
    ("check llama --tokens 3", 2, "`--tokens` is 3, expected an integer of at least 8 and at most 1,000,000,000,000"),
    ("check llama --seed x", 2, "`--seed` is 'x', expected an integer of at least 0"),
    (
        "check llama --scenarios step",
        2,
        f"`scenarios` has 'step'; known: {GROUPS}\n\nhint: or the name of a single scenario, as a report prints it",
    ),
    ("check llama --tolerance much", 2, "`--tolerance` is 'much', expected a number above 0 and below 1"),
    ("check llama --tolerance 0", 2, "`--tolerance` is 0, expected a number above 0 and below 1"),
    ("check llama --tolerance 1", 2, "`--tolerance` is 1, expected a number above 0 and below 1"),
    ("check llama --tolerance nan", 2, "`--tolerance` is nan, expected a number above 0 and below 1"),
    ("check llama --screen -1", 2, "`--screen` is -1, expected a number of at least 0"),
    ("check llama --against rows", 2, "`--against` is given without `--zoo`, where it means nothing"),
    ("check --zoo --screen 9", 2, "`--screen` is given with `--zoo`, where it means nothing"),
    ("check --zoo --against rows", 3, "rows: cannot be read: No such file or directory"),
    ("check llama --only gpt2", 2, "`--only` is given without `--zoo`, where it means nothing"),
    ("check llama -n 2", 2, "`-n` is given without `--zoo`, where it means nothing"),
    ("check --zoo --tokens 9", 2, "`--tokens` is given with `--zoo`, where it means nothing"),
    ("check llama --zoo", 2, "`--zoo` and MODEL `llama` are both given, expected one of them\n\nhint: --only llama"),
    (
        "check distilbert",
        2,
        "`model_type` is `distilbert`, expected one that transformers has a language model for\n\n"
        "hint: an encoder has none, and no cache; build one of your own and say how it is called with "
        "calls=kvtally.live.Convention(...)",
    ),
    (
        "check broken.gguf",
        3,
        "broken.gguf: starts with b'text', expected b'GGUF'\n\nhint: is it a GGUF file, and a whole one?",
    ),
    ("check nowhere.gguf", 3, "nowhere.gguf: no such file, expected a .gguf file"),
    ("check no_such_module:model", 3, "no_such_module:model: cannot be imported: No module named 'no_such_module'"),
    (
        "check own_factories:nothing",
        2,
        "own_factories:nothing: `own_factories` has no function `nothing`; known: `healthy`, `sick`",
    ),
    (
        "check llama --tokns 9",
        2,
        "kvtally check: no option `--tokns`; nearest: `--tokens`, `--only`\n\n"
        "hint: kvtally check --help lists them all",
    ),
]

FACTORIES = """
def healthy():
    from kvtally.live.harness import build
    from kvtally.live.zoo import scaled
    from kvtally.live.zoo_shrink import shrunk
    return scaled(build(shrunk("gpt2"), device="cpu"))

def sick():
    model = healthy()
    def last(_model, args, given):
        if given.get("cache") is not None and given["cache"].get_seq_length():
            given["input_ids"] = given["input_ids"].roll(1, -1)
            given["position_ids"] = given["input_ids"] * 0
        return args, given
    model.register_forward_pre_hook(last, with_kwargs=True)
    return model
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_factories.py").write_text(FACTORIES)
    (tmp_path / "broken.gguf").write_text("text, no GGUF")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(("line", "code", "said"), PINNED)
def test_message(line: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = main(shlex.split(line))
    out, err = capsys.readouterr()
    assert (found, out) == (code, "")
    assert err.strip() == said


def test_a_hub_that_is_not_asked_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert main(["check", "nobody/nothing-here"]) == 3
    cache = constants.HF_HUB_CACHE
    problem = f"nobody/nothing-here: not in the local cache ({cache}), and HF_HUB_OFFLINE is set"
    assert capsys.readouterr().err == f"{problem}\n\nhint: unset it, or name a file\n"


def test_a_model_without_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "openai-gpt", "--scenarios", "chunks of 3"]) == 2
    out = capsys.readouterr().out
    assert "steps: chunks of 3: the model takes no cache\n\nopenai-gpt: unsupported: 5 scenarios ran" in out


def test_full_size_builds_a_config_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven layers of odd sizes: shrunk to four, or not."""
    sizes = {"hidden_size": 36, "num_hidden_layers": 7, "num_attention_heads": 3, "vocab_size": 211}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 7, **sizes}))
    found = {full: load(".", full_size=full).model.config for full in (False, True)}
    assert [(c.n_layer, c.hidden_size, c.vocab_size) for c in found.values()] == [(4, 96, 131), (7, 36, 211)]
    assert main(["check", ".", "--full-size", "--scenarios", "chunks of 3", "--tokens", "9"]) == 0


def test_a_model_of_ones_own_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "own_factories:healthy", "--scenarios", "steps", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["verdict"], record["groups"]["steps"]) == ("rounding", "rounding")
    assert record["name"] == "own_factories:healthy"


def test_a_model_of_ones_own_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["check", "own_factories:sick", "--scenarios", "steps", "--html", str(page)]) == 1
    out = capsys.readouterr().out
    assert "own_factories:sick: DEFECT: 14 scenarios ran, 8 defects" in out
    assert "steps: prefill, then steps: DEFECT" in out
    assert "own_factories:sick: DEFECT" in page.read_text()


def test_a_config_without_weights_is_built_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"hidden_size": 4096, "num_hidden_layers": 80, "num_attention_heads": 32, "vocab_size": 128256}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    assert main(["check", ".", "--scenarios", "steps", "--format", "md"]) == 0
    assert "| steps | chunks of 3 | rounding |" in capsys.readouterr().out
