"""Models that a formula cannot count: refused, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.pure.config_fields import HINT, Fields


def blt(f: Fields) -> NoReturn:
    """BLT: how many patches its global transformer sees is decided by an entropy model, text by text."""
    raise InputError(
        f"`model_type` is `{f.model_type}`, which cuts text into patches by their entropy while it runs; "
        "expected a decoder whose config tells how many tokens each layer sees",
        hint=HINT,
    )


def prophetnet(f: Fields) -> NoReturn:
    """ProphetNet: predicts `ngram` tokens at once, each by a stream of rows with keys of its own beside the text's."""
    streams = f.integer("ngram")
    raise InputError(
        f"{f.said('ngram')}: every token is {1 + streams} rows, and those of the {streams} streams score keys of "
        "their own that are not cached; expected one row a token",
        hint=HINT,
    )


def reformer(f: Fields) -> NoReturn:
    """Reformer: keys are chosen by random hashing, and the cache holds hidden states and hash buckets."""
    kinds = ", ".join(
        f"`{kind}`" for kind in dict.fromkeys(f.words("attn_layers", ("local", "lsh")) or ("local", "lsh"))
    )
    raise InputError(
        f"`attn_layers` is {kinds}: keys are sorted into buckets by random hashes, and hidden states are cached; "
        "expected layers that cache keys and values",
        hint=HINT,
    )


def xlm(f: Fields) -> NoReturn:
    """XLM: sees later tokens too, or is run over the whole text again."""
    causal = f.has("causal") and f.flag("causal")
    found = (
        "`causal` is true, and still it takes the whole text" if causal else "`causal` is false: tokens see later ones"
    )
    raise InputError(f"{found}; expected a decoder that goes on from a cache", hint=HINT)


def xlnet(f: Fields) -> NoReturn:
    """XLNet: permutes what a token sees, and keeps hidden states instead of keys and values."""
    f.word("attn_type")
    raise InputError(
        f"{f.said('attn_type')}: XLNet keeps hidden states (`mems`), from which keys and values are made again; "
        "expected a decoder that caches keys and values",
        hint=HINT,
    )


FAMILIES: dict[str, Callable[[Fields], Decoder]] = {
    "blt": blt,
    "prophetnet": prophetnet,
    "reformer": reformer,
    "xlm": xlm,
    "xlnet": xlnet,
}
