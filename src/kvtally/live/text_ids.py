"""The token ids of a text, by the tokenizer beside a model's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvtally.core.errors import UnreadableError
from kvtally.live.checked_model import unbarred
from kvtally.live.refusal import refusal_of


def text_ids(model: str, text: str) -> Any:
    """Token ids (1, n) of `text`, special tokens as the tokenizer puts them: of a folder, a .gguf file or a hub id."""
    from transformers import AutoTokenizer

    path = Path(model)
    place, more = (str(path.parent), {"gguf_file": path.name}) if model.endswith(".gguf") else (model, {})
    try:
        with unbarred():
            tokenizer = AutoTokenizer.from_pretrained(place, **more)
    except Exception as error:  # whatever a file of tokens makes its readers raise
        said = f"no tokenizer can be loaded: {refusal_of(error)}"
        raise UnreadableError(said, where=model, hint="--tokens N takes random tokens instead") from error
    return tokenizer(text, return_tensors="pt").input_ids
