"""Speed of `size`: start-up of the whole command, sizes of parsed decoders a second, what fits by bisection."""

from __future__ import annotations

import sys
from functools import partial

from measure import cpu_seconds, seconds, side_by_side, write

from kvtally import read_model
from kvtally.core.decoder import Decoder
from kvtally.pure import catalogue
from kvtally.pure.size import cache_types, fits, held_bytes, size

TOKENS, ROUNDS = 32768, 20
SOURCE = {"t5-base": 512, "whisper-large-v3": 1500}


def start_up() -> tuple[str, str, str]:
    kvtally = partial(cpu_seconds, [sys.executable, "-m", "kvtally", "size", "llama-3.1-8b", "--memory", "80GiB"])
    python = partial(cpu_seconds, [sys.executable, "-c", "pass"])
    mine, bare, ratio = side_by_side(kvtally, python, runs=15)
    return (
        "`kvtally size llama-3.1-8b --memory 80GiB`",
        f"{mine:.3f} s CPU",
        f"{ratio:.1f}x `python -c pass` ({bare:.3f} s)",
    )


def sizes(decoders: list[Decoder]) -> tuple[str, str, str]:
    """A footprint by layer and part, against the bytes alone of a decoder asked again and again."""
    asked = [held_bytes(decoder, cache_types()) for decoder in decoders]

    def footprints() -> None:
        for _ in range(ROUNDS):
            for decoder in decoders:
                size(decoder, TOKENS)

    def bytes_alone() -> None:
        for _ in range(ROUNDS):
            for needed in asked:
                needed(TOKENS, 1)

    whole, alone, ratio = side_by_side(lambda: seconds(footprints), lambda: seconds(bytes_alone))
    many = ROUNDS * len(decoders)
    return (
        f"`size`, {len(decoders)} decoders of the catalogue, parsed",
        f"{many / whole:,.0f} footprints a second",
        f"{many / alone:,.0f} a second by `held_bytes` ({ratio:.0f}x as many)",
    )


def bisection(decoders: list[Decoder]) -> tuple[str, str, str]:
    asked = [held_bytes(decoder, cache_types()) for decoder in decoders]

    def all_fits() -> None:
        for needed in asked:
            fits(needed, 72 * 2**30, TOKENS)

    def once() -> None:
        for needed in asked:
            needed(TOKENS, 1)

    mine, _, ratio = side_by_side(lambda: seconds(all_fits), lambda: seconds(once))
    return "`fits`, the same decoders", f"{1e6 * mine / len(decoders):.0f} µs each", f"{ratio:.0f}x one `held_bytes`"


def main() -> None:
    decoders = [read_model(name, source=SOURCE.get(name)) for name in catalogue.names()]
    write("size", [start_up(), sizes(decoders), bisection(decoders)], "no other package")


if __name__ == "__main__":
    main()
