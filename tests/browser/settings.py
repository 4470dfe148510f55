"""Settings of the page: drawn at random, as an address, and as what Python is asked for the same."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from urllib.parse import urlencode

from kvtally import Decoder, Pass, Tally, cached, chunked, conversation, count, edited, prefix_hit, uncached
from kvtally.frontends.sizes import Sizes

STORIES = ("generate", "prompt", "edit", "chunk", "window", "turns", "prefix", "batch")

Setting = Mapping[str, Any]


def at_random(dice: Random, *, most: int, batch: int) -> dict[str, Any]:
    """A setting whose lengths go up to about `most`: one decade is as likely as another."""

    def length(top: int = most) -> int:
        return max(1, min(top, int(10 ** dice.uniform(0, len(str(top)) - 1)) + dice.randrange(3)))

    kv, prompt = dice.choice([1, 2, 3, 8]), length()
    return {
        "story": dice.choice(STORIES), "prompt": prompt, "new": length(), "at": dice.randrange(prompt),
        "hit": dice.randrange(prompt), "chunk": length(), "batch": dice.randint(1, batch),
        "turns": ",".join(f"{length()}+{length()}" for _ in range(dice.randint(1, 5))),
        "layers": dice.choice([1, 1, 2, 3, 32, 126]), "hidden": dice.choice([5, 64, 768, 4096, 16384]),
        "heads": kv * dice.choice([1, 2, 4, 7]), "kvHeads": kv, "headDim": dice.choice([1, 3, 64, 128]),
        "mlp": dice.choice([0, 7, 3072, 14336]), "gated": dice.choice(["true", "false"]),
        "output": dice.choice(["true", "false"]), "vocab": dice.choice([0, 11, 50257]),
        "window": dice.choice([0, 0, 1, 2, length()]), "kernel": dice.choice(["causal", "dense"]),
        "loop": dice.choice(["lesson", "forward"]), "bytes": dice.choice([1, 2, 4]),
    }  # fmt: skip


def address(setting: Setting) -> str:
    """The setting as the page's URL hash."""
    return "#" + urlencode(setting)


def decoder(s: Setting) -> Decoder:
    """The decoder of a setting."""
    return Sizes(
        layers=s["layers"], hidden=s["hidden"], heads=s["heads"], kv_heads=s["kvHeads"], head_dim=s["headDim"],
        mlp=s["mlp"], gated=s["gated"] in (True, "true"), o_proj=s["output"] in (True, "true"), vocab=s["vocab"],
        window=s["window"],
    ).decoder()  # fmt: skip


def lists(s: Setting) -> tuple[tuple[Pass, ...], tuple[Pass, ...]]:
    """The two lists of passes that a story is about."""
    prompt, new = s["prompt"], s["new"]
    if s["story"] == "turns":
        turns = [tuple(map(int, turn.split("+"))) for turn in s["turns"].split(",")]
        return tuple(conversation(turns, carried=carried) for carried in (False, True))  # type: ignore[return-value]
    if s["story"] == "edit":
        return cached(prompt, new), edited(prompt, s["at"], new)
    if s["story"] == "chunk":
        return cached(prompt, new), chunked(prompt, new, s["chunk"])
    if s["story"] == "prefix":
        return cached(prompt, new), prefix_hit(prompt, s["hit"], new)
    return uncached(prompt, new, loop=s["loop"]), cached(prompt, new)


def tallies(s: Setting) -> tuple[Tally, Tally]:
    """What kvtally counts for both lists."""
    left, right = (s["batch"] * count(decoder(s), passes, kernel=s["kernel"]) for passes in lists(s))
    return left, right


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """A tally's record without the road it came by."""
    return {name: value for name, value in record.items() if name not in ("road", "uncounted")}
