"""The built-in catalogue: every entry reads, and says what the published file says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.errors import InputError
from kvtally.pure import catalogue
from kvtally.pure.config import FAMILIES, WITH_ENCODER, read_config

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[3] / "shared")) / "facts"


def published(name: str) -> Path:
    model = (
        catalogue.entry(name)["source"].removeprefix("https://huggingface.co/").removesuffix("/blob/main/config.json")
    )
    return SHARED / "configs" / f"{model.replace('/', '--')}.json"


@pytest.mark.parametrize("name", catalogue.names())
def test_entry_reads(name: str) -> None:
    config = catalogue.entry(name)["config"]
    source = 512 if config["model_type"] in WITH_ENCODER else None
    assert read_config(config, where=name, source=source).held(1) > 0


def test_there_are_models_of_many_families() -> None:
    families = {catalogue.entry(name)["config"]["model_type"] for name in catalogue.names()}
    assert families <= set(FAMILIES)
    assert len(families) >= 15
    assert len(catalogue.names()) >= 20


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of shared facts (KVTALLY_SHARED)")
def test_entries_are_the_decoders_of_the_published_files() -> None:
    there = [name for name in catalogue.names() if published(name).is_file()]
    assert len(there) >= 20
    for name in there:
        file: dict[str, Any] = json.loads(published(name).read_text())
        assert read_config(catalogue.entry(name)["config"]) == read_config(file), name


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        catalogue.entry("lama-3.1-8b")
    assert str(caught.value) == (
        "`lama-3.1-8b` is no file, no folder and not in the catalogue\n\n"
        "hint: did you mean `llama-3.1-8b` or `llama-3.1-70b` or `llama-3.1-405b`? `kvtally models` lists the catalogue"
    )
    with pytest.raises(InputError, match=r"\n\nhint: `kvtally models` lists the catalogue$"):
        catalogue.entry("?")
