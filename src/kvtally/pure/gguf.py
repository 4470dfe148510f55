"""GGUF metadata -> Decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError, KvtallyError
from kvtally.pure import gguf_attention, gguf_gemma, gguf_latent, gguf_recurrent
from kvtally.pure.config_fields import HINT, Fact, shown
from kvtally.pure.gguf_file import Header, read_header
from kvtally.pure.gguf_keys import Keys

# How each architecture is read: every module lists its own.
READERS: dict[str, Callable[[Keys], Decoder]] = {
    **gguf_attention.READERS,
    **gguf_gemma.READERS,
    **gguf_latent.READERS,
    **gguf_recurrent.READERS,
}
ENCODERS = {
    "bert", "clip", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llama-embed", "modern-bert",
    "neo-bert", "nomic-bert", "nomic-bert-moe", "t5encoder", "wavtokenizer-dec",
}  # fmt: skip
DIFFUSION = {"dream", "llada", "llada-moe", "rnd1"}
NO_CACHE = {**dict.fromkeys(ENCODERS, "an encoder"), **dict.fromkeys(DIFFUSION, "a diffusion model")}


def read_gguf(path: str | Path) -> Decoder:
    """The decoder that the metadata of a GGUF file describes, as llama.cpp runs and caches it.

    No tensor is read, and no package is needed. Keys are `{arch}.block_count`,
    `{arch}.attention.head_count` and so on. Where a family slides in a pattern that the file does not
    hold, it is the one llama.cpp has built in; a window that llama.cpp ignores (Phi-3, Mistral under the
    name of llama) is set aside, as more is cached than the model needs. Raises UnreadableError for what
    is not a whole GGUF file, InputError for an architecture, a key or a value that is not known.
    Not read: tensors, so a tied output head counts like any other; draft layers.

    >>> read_gguf("absent.gguf")
    Traceback (most recent call last):
        ...
    kvtally.core.errors.UnreadableError: absent.gguf: no such file, expected a GGUF file
    <BLANKLINE>
    hint: check the path
    """
    return read_gguf_facts(path)[0]


def read_gguf_facts(path: str | Path) -> tuple[Decoder, tuple[Fact, ...]]:
    """The Decoder of a GGUF file, and every fact it rests on with where that came from.

    A source is a key of the file, `llama.cpp default` where the file lacks the key, what it was derived
    from, or `hard-coded for arch …` where llama.cpp has the value built in.
    """
    place = Path(path)
    try:
        header = read_header(place)
        keys = Keys(header, _arch(header))
        if not keys.flag("attention.causal", default=True):
            raise InputError(f"`{keys.arch}.attention.causal` is false: every token sees later ones, there is no cache")
        decoder = READERS[keys.arch](keys)
        keys.refuse_unread()
    except KvtallyError as error:
        raise error.at(place.name) from None
    name = header.values.get("general.name")
    return replace(decoder, name=name if isinstance(name, str) and name else place.stem), tuple(keys.facts.values())


def _arch(header: Header) -> str:
    arch, known = header.values.get("general.architecture"), ", ".join(f"`{name}`" for name in sorted(READERS))
    if not isinstance(arch, str):
        found = "missing" if arch is None else shown(arch)
        raise InputError(f"`general.architecture` is {found}; known: {known}")
    if arch in NO_CACHE:
        raise InputError(f"`general.architecture` is `{arch}`, {NO_CACHE[arch]}: it has no KV cache; known: {known}")
    if arch not in READERS:
        raise InputError(f"`general.architecture` is `{arch:.60}`; known: {known}", hint=HINT)
    return arch
