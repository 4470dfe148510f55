"""Config objects of transformers read as the fields they hold; so do paths and folders."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kvtally import InputError, KvtallyError, read_config, read_model
from kvtally.pure.config import FAMILIES, WITH_ENCODER, read_facts

FIELDS = {"model_type": "gemma2", "num_hidden_layers": 4, "hidden_size": 24, "sliding_window": 9}


# The defaults of its class do not pass its own validation.
REFUSES_ITSELF = ("gemma4_assistant",)


def test_every_config_object_reads_as_the_model_type_alone() -> None:
    """An object spells out all class defaults, and much that bears on nothing; neither may change the decoder."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    transformers.logging.set_verbosity(logging.ERROR)
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    read = 0
    for name in sorted({*FAMILIES} & {*known} - {*REFUSES_ITSELF}):
        source = 7 if name in WITH_ENCODER else None
        config = transformers.AutoConfig.for_model(name)
        try:
            alone = read_config({"model_type": name}, source=source)
        except KvtallyError as error:  # its defaults describe no decoder: an encoder, a config within that is missing
            assert_no_field_is_unread(config, source, alone=str(error))
            continue
        assert read_config(config, source=source) == alone, name
        read += 1
    assert read > 120  # of 162 in transformers 5.24


def assert_no_field_is_unread(config: Any, source: int | None, *, alone: str) -> None:
    try:
        read_config(config, source=source)
    except KvtallyError as error:
        assert "is not read for" not in str(error), (alone, str(error))


def test_an_object_of_any_kind_with_to_dict_is_read() -> None:
    class Config:
        def to_dict(self) -> dict[str, object]:
            return dict(FIELDS)

    assert read_config(Config()) == read_config(FIELDS)
    assert read_facts(Config())[1] == read_facts(FIELDS)[1]


def test_a_file_a_folder_and_a_name_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FIELDS))
    assert read_config(path) == read_config(tmp_path) == read_config(str(path)) == read_config(FIELDS)
    assert read_config("gpt2") == read_model("gpt2")


@pytest.mark.parametrize("config", [3, None, ["gpt2"], object()])
def test_anything_else_is_refused(config: object) -> None:
    with pytest.raises(InputError, match=r"config: the config is .*, expected an object"):
        read_config(config)  # type: ignore[arg-type]


def test_readers_are_loaded_when_they_are_asked_for() -> None:
    import subprocess
    import sys

    code = (
        "import sys, kvtally; early = [m for m in sys.modules if m.startswith('kvtally.pure.')]\n"
        "kvtally.read_gguf, kvtally.read_model, kvtally.describe, kvtally.read_described, kvtally.read_config\n"
        "print(*early)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["kvtally.pure.count_closed"]
