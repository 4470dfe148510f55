"""Wrong questions to `kvtally check`: every message pinned, exit code and all."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from kvtally.frontends.cli import main
from kvtally.live.checked_model import load

BIG = 5000 * "9"
GROUPS = "`all`, `power`, `steps`, `static`, `padding`, `edit`, `batch`, `reuse`, `window`, `generate`"
WHOLE = "`--full-size` is given and the model has its size, expected a config alone"
MADE = "\n\nhint: expected is a function without arguments that gives a model or an Adapter"
PINNED = [
    ("check", 2, "MODEL is missing, expected one, or `--zoo`\n\nhint: kvtally check llama"),
    ("check llama --format xml", 2, "`--format` is 'xml'; known: `json`, `md`, `table`"),
    ("check llama --dtype int8", 2, "`--dtype` is 'int8'; known: `bfloat16`, `float16`, `float32`, `float64`"),
    ("check llama --tokens 3", 2, "`--tokens` is 3, expected an integer of at least 8 and at most 1,000,000"),
    (
        "check llama --tokens 1000000000000",
        2,
        "`--tokens` is 1,000,000,000,000, expected an integer of at least 8 and at most 1,000,000",
    ),
    (f"check --zoo -n {BIG}", 2, f"`-n` is '{BIG[:40]}…', expected an integer of at least 1"),
    (
        f"check {BIG}",
        2,
        f"`{BIG[:60]}` is no file, no folder and not in the catalogue\n\nhint: `kvtally models` lists the catalogue",
    ),
    ("check --zoo --tokens ''", 2, "`--tokens` is given with `--zoo`, where it means nothing"),
    (
        "check llama --scenarios ''",
        2,
        f"`scenarios` has ''; known: {GROUPS}\n\nhint: or the name of a single scenario, as a report prints it",
    ),
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
        "distilbert: `model_type` is `distilbert`, expected one that transformers has a language model for\n\n"
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
    ("check own_factories:healthy --full-size", 2, "own_factories:healthy: " + WHOLE),
    ("check broken.gguf --full-size", 2, "broken.gguf: " + WHOLE),
    ("check weights --full-size", 2, "weights: " + WHOLE),
    (
        "check broken_factories:boom",
        2,
        f"broken_factories:boom: raised ValueError: boom (FOLDER/broken_factories.py:2){MADE}",
    ),
    (
        "check broken_factories:leave",
        2,
        f"broken_factories:leave: raised SystemExit: 3 (FOLDER/broken_factories.py:5){MADE}",
    ),
    (
        "check broken_factories:build",
        2,
        "broken_factories:build: `model_type` is None, expected one that this transformers knows\n\n"
        "hint: upgrade transformers, or build the model yourself",
    ),
    ("check no_python:model", 3, "no_python:model: cannot be imported: invalid syntax (no_python.py, line 1)"),
    ("check raises:model", 3, "raises:model: cannot be imported: ValueError: early (FOLDER/raises.py:1)"),
    (
        "check os:getcwd",
        2,
        "`model` is a str, expected a transformers model\n\nhint: say how your own model is called with "
        "kvtally.live.Adapter(full=…, extend=…, fresh=…, vocab_size=…)",
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
    from kvtally.live.checked_model import load
    return load("gpt2").model

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

BROKEN = """def boom():
    raise ValueError("boom")

def leave():
    raise SystemExit(3)

def build():
    from kvtally.live import build
    return build({})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_factories.py").write_text(FACTORIES)
    (tmp_path / "broken_factories.py").write_text(BROKEN)
    (tmp_path / "no_python.py").write_text("def")
    (tmp_path / "raises.py").write_text("raise ValueError('early')")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").touch()
    (tmp_path / "broken.gguf").write_text("text, no GGUF")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(("line", "code", "said"), PINNED, ids=[line[:40] for line, *_ in PINNED])
def test_message(line: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("broken_factories", None)  # of another folder
    found = main(shlex.split(line))
    out, err = capsys.readouterr()
    assert (found, out) == (code, "")
    assert err.strip() == said.replace("FOLDER", tmp_path.name)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "vocab_size": 61,
}
LIVE = {
    "check c.json --scenarios power": "c.json: ",
    "round c.json --tokens 9": "c.json: ",
    "count c.json --against traced": "--against traced: ",
    "size c.json --measure": "--measure: ",
}
EVERYWHERE = [
    ({"hidden_act": "foo"}, "KeyError: 'foo' (transformers/activations.py"),
    (
        {"rope_scaling": 5},
        "StrictDataclassFieldValidationError: Validation error for field 'rope_parameters': TypeError",
    ),
    (
        {"eos_token_id": "x"},
        "StrictDataclassFieldValidationError: Validation error for field 'eos_token_id': TypeError",
    ),
    ({"dtype": "foo"}, "AttributeError: module 'torch' has no attribute 'foo'"),
]
AT_FULL_SIZE = [
    ({"pad_token_id": 999}, "AssertionError: Padding_idx must be within num_embeddings"),
    ({"rope_parameters": {"rope_type": "foo"}}, "KeyError: 'foo'"),
]


@pytest.mark.parametrize(
    ("line", "fields", "said"),
    [
        *((line, *case) for line in LIVE for case in EVERYWHERE),
        *((line, *case) for line in list(LIVE)[2:] for case in AT_FULL_SIZE),
    ],
)
def test_what_transformers_refuses_of_a_config_is_said(
    line: str, fields: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.json").write_text(json.dumps(LLAMA | fields))
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert f"{LIVE[line]}transformers does not build this llama: {said}" in err
    assert out == ""


@pytest.mark.parametrize("line", list(LIVE)[:2])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": ["llama"]}, "`model_type` is ['llama'], expected one that this transformers knows"),
        ({"num_key_value_heads": 3}, "`num_attention_heads` is 4 and `num_key_value_heads` is 3, expected a whole"),
    ],
)
def test_what_shrinking_would_hide_is_said(
    line: str, fields: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.json").write_text(json.dumps(LLAMA | fields))
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"c.json: {said}")


def test_a_config_that_is_not_read_is_shrunk_all_the_same() -> None:
    Path("c.json").write_text(json.dumps({"model_type": "xlnet", "d_model": 1024, "n_layer": 6, "n_head": 16}))
    assert load("c.json").model.config.d_model == 96


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


def test_power_alone_says_whether_the_check_can_see(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "llama", "--scenarios", "power"]) == 0
    assert "llama: rounding: 6 scenarios ran, 0 defects" in capsys.readouterr().out
    assert main(["check", "openai-gpt", "--scenarios", "power"]) == 2
    assert "openai-gpt: unsupported: 5 scenarios ran" in capsys.readouterr().out


def test_bars_of_others_are_not_shown_in_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from huggingface_hub import utils as hub
    from transformers.utils import logging

    load("gpt2").model.save_pretrained(tmp_path / "real")
    capsys.readouterr()
    before = logging.is_progress_bar_enabled(), hub.are_progress_bars_disabled()
    assert before == (True, False)
    assert main(["check", "real", "--scenarios", "power"]) == 0
    assert capsys.readouterr().err == ""
    assert (logging.is_progress_bar_enabled(), hub.are_progress_bars_disabled()) == before


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
