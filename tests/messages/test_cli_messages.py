"""Wrong questions on the command line: every message pinned, exit code and all."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtally.frontends.cli import kvtally, main

MOST = "expected an integer of at least 1 and at most 1,000,000,000,000"
VERBS = ", ".join(f"`{verb}`" for verb in kvtally.commands)

PINNED = [
    ("count gpt2 --bacth 3", 2, "kvtally count: no option `--bacth`; nearest: `--batch`\n\n"
     "hint: kvtally count --help lists them all"),
    ("coun", 2, "kvtally: no command `coun`; nearest: `count`, `round`\n\nhint: kvtally --help lists them all"),
    ("xyz", 2, f"kvtally: no command `xyz`; known: {VERBS}\n\nhint: kvtally --help lists them all"),
    ("count gpt2 --prompt", 2, "kvtally count: option `--prompt` requires an argument\n\n"
     "hint: kvtally count --help lists every option"),
    ("count gpt2 gpt2", 2, "kvtally count: got unexpected extra argument (gpt2)\n\n"
     "hint: kvtally count --help lists every option"),
    ("count --lengths 10,abc", 2, "`--lengths[1]` is 'abc', expected an integer of at least 1"),
    ("count --lengths 10,,20", 2, "`--lengths[1]` is '', expected an integer of at least 1"),
    ("count --turns 5", 2, "`--turns[0]` is '5', expected tokens of the user + tokens generated\n\n"
     "hint: write turns as 512+128,64+128"),
    ("count --turns 5+3,2+0", 2, f"`--turns[1]` is 0, {MOST}"),
    ("count --new -3", 2, f"`--new` is -3, {MOST}"),
    ("count --prompt 0", 2, f"`--prompt` is 0, {MOST}"),
    ("count --prompt 2.5", 2, "`--prompt` is '2.5', expected an integer of at least 1"),
    ("count --new 9999999999999999", 2, f"`--new` is 9,999,999,999,999,999, {MOST}"),
    ("count --prompt 1000000000000 --new 2", 2, "`--prompt` 1,000,000,000,000 and 2 new tokens make a context of "
     "1,000,000,000,001 tokens, expected at most 1,000,000,000,000"),
    ("count gpt2 --prompt 1000000000000", 2, "`--prompt` 1,000,000,000,000 and 128 new tokens make a context of "
     "1,000,000,000,127 tokens, expected at most 1,000,000,000,000"),
    ("count gpt2 --lengths 1000000000000", 2, "`--prompt` 512 and 1,000,000,000,000 new tokens make a context of "
     "1,000,000,000,511 tokens, expected at most 1,000,000,000,000"),
    ("count gpt2 --turns 1000000000000+1,1+1", 2, "`--turns` make a context of 1,000,000,000,002 tokens, expected at "
     "most 1,000,000,000,000"),
    ("count --layers 1000000000000", 2,
     "`--layers` is 1,000,000,000,000, expected an integer of at least 1 and at most 10,000"),
    ("count --layers 2 --no-gate", 2, "`--no-gate` is given without `--mlp`, expected that as well"),
    ("count gpt2 --by layer --format json", 2, "`--by` is given with `--format json`, where it means nothing\n\n"
     "hint: JSON and CSV have every cell"),
    ("count gpt2 --by term --format csv", 2, "`--by` is given with `--format csv`, where it means nothing\n\n"
     "hint: JSON and CSV have every cell"),
    ("facts gpt2 --source " + "9" * 5000, 2, f"`--source` is '{'9' * 40}…', expected an integer of at least 1"),
    ("facts gpt2 --source 0", 2, f"`--source` is 0, {MOST}"),
    ("zoo -n " + "9" * 5000, 2, f"`-n` is '{'9' * 40}…', expected an integer of at least 1"),
    ("zoo -n 0", 2, "`-n` is 0, expected an integer of at least 1 and at most 256"),
    ("zoo --new --format json", 2, "`--format` is given with `--new`, where it means nothing"),
    ("zoo --new --only nope", 2, "`--only` is given with `--new`, where it means nothing"),
    ("zoo --new -n 3", 2, "`-n` is given with `--new`, where it means nothing"),
    ("zoo --new --out zz", 2, "`--out` is given with `--new`, where it means nothing"),
    ("zoo --new --results zz", 2, "`--results` is given with `--new`, where it means nothing"),
    ("zoo --new --engine ray", 2, "`--engine` is given with `--new`, where it means nothing"),
    ("count --batch many", 2, "`--batch` is 'many', expected an integer of at least 1"),
    ("count --new " + "9" * 5000, 2, f"`--new` is '{'9' * 40}…', expected an integer of at least 1"),
    ("count gpt2 --edit-at 512", 2, "`--edit-at` is 512, expected an integer of at least 0 and at most 511"),
    ("count gpt2 --chunk 3 --edit-at 3", 2, "`--edit-at` and `--chunk` are both given, expected one of them\n\n"
     "hint: ask one question at a time"),
    ("count gpt2 --turns 3+4 --prompt 3", 2, "`--turns` and `--prompt` are both given, expected one of them"),
    ("count gpt2 --lengths 3 --against executed", 2,
     "`--lengths` and `--against` are both given, expected one of them"),
    ("count gpt2 --chunk 3 --uncached forward", 2,
     "`--uncached` is 'forward' with `--chunk`, expected neither: both sides are cached"),
    ("count --format xml", 2, "`--format` is 'xml'; known: `csv`, `json`, `md`, `table`"),
    ("count --kernel flash", 2, "`--kernel` is 'flash'; known: `causal`, `dense`"),
    ("count --uncached none", 2, "`--uncached` is 'none'; known: `forward`, `lesson`"),
    ("count --by head", 2, "`--by` is 'head'; known: `layer`, `phase`, `term`"),
    ("count --against truth", 2, "`--against` is 'truth'; known: `executed`, `traced`"),
    ("count --source 3", 2, "`--source` is given without a MODEL, expected a model with an encoder"),
    ("count gpt2 --absorbed", 2,
     "--absorbed: no layer has latent attention to absorb kv_b_proj into, expected at least one"),
    ("count --against traced", 2,
     "`--against traced` is given without a MODEL, expected one that transformers can build"),
    ("count gpt2 --against traced --kernel causal", 2,
     "`kernel` is 'causal' and `uncached` is 'forward', expected 'dense' and 'forward': that is what PyTorch runs\n\n"
     "hint: leave both options out with --against traced"),
    ("count gpt2 --against executed --prompt 9000", 2,
     "even for a small copy, these passes take up to 10,421,588,552 multiplications, expected at most 100,000,000 "
     "to execute them\n\nhint: ask for fewer tokens"),
    ("count lama-3.1-8b", 2, "`lama-3.1-8b` is no file, no folder and not in the catalogue\n\n"
     "hint: did you mean `llama-3.1-8b` or `llama-3.1-70b` or `llama-3.1-405b`? `kvtally models` lists the catalogue"),
    ("count nowhere/config.json", 3, "nowhere/config.json: no such file\n\nhint: name a config.json, its folder, "
     "a .gguf file, a Hugging Face id, or a name that `kvtally models` lists"),
    ("count nowhere.gguf", 3, "nowhere.gguf: no such file\n\nhint: name a config.json, its folder, "
     "a .gguf file, a Hugging Face id, or a name that `kvtally models` lists"),
]  # fmt: skip


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of a command that must not print data."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    return code, err.removesuffix("\n")


@pytest.mark.parametrize(("command", "code", "message"), PINNED, ids=[command[:40] for command, _, _ in PINNED])
def test_a_wrong_question_gets_this_message(
    command: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(command.split(), capsys) == (code, message)


CONFIGS = [
    ("not json", 2, "config.json: is not JSON: Expecting value at line 1, column 1\n\n"
     "hint: give the config.json that lies beside the weights"),
    ('{"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 4, "hidden_size": 96}', 2,
     "config.json: `num_attention_heads` is 6 and `num_key_value_heads` is 4, expected a whole number of query heads "
     "for each KV head"),
    ('{"model_type": "llama", "num_hidden_layers": -2}', 2,
     "config.json: `num_hidden_layers` is -2, expected an integer of at least 1 and at most 10,000"),
    ('{"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}', 2,
     "config.json: `num_experts_per_tok` is 5 and `num_local_experts` is 4, expected at most as many experts a token "
     "as there are"),
    ('{"model_type": "t5"}', 2, "config.json: `source` is not given, and a `t5` config does not fix how many tokens "
     "the encoder reads\n\nhint: say how many: --source 512, or source=512 in Python"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "code", "message"), CONFIGS, ids=[content[:40] for content, _, _ in CONFIGS])
def test_a_wrong_config_is_named_by_its_file(
    content: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content)
    assert refused(["count", str(tmp_path)], capsys) == (code, f"{tmp_path}/{message}")


@pytest.mark.parametrize("option", ["--layers", "--hidden", "--mlp", "--source"])
def test_an_empty_number_is_none(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    least = 0 if option == "--mlp" else 1
    assert refused(["count", option, ""], capsys) == (2, f"`{option}` is '', expected an integer of at least {least}")


def test_an_unknown_model_type_is_shown_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "megaformer"}')
    code, found = refused(["count", str(tmp_path)], capsys)
    problem, hint = found.split("\n\n")
    assert code == 2
    assert problem.startswith(f"{tmp_path}/config.json: `model_type` is `megaformer`; known: `")
    assert hint == "hint: describe the layers yourself with kvtally.Layer(...)"


def test_what_transformers_cannot_build_is_not_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"kvtally": 1, "hidden_size": 8, "vocab_size": 0, "layers": [{}]}')
    assert refused(["count", str(path), "--against", "traced"], capsys) == (
        2,
        f"`--against traced` is given with `{path}`, expected a config that transformers can build from\n\n"
        "hint: use --against executed",
    )
