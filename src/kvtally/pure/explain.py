"""A line of an engine's log: which quantity it is, and the same number from the decoder."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.pure import explain_llama_cpp, explain_sglang, explain_vllm
from kvtally.pure.engine_llama_cpp import require_one_device
from kvtally.pure.engine_parts import choices
from kvtally.pure.engine_vllm import VllmRules
from kvtally.pure.explained import Explanation, Logged
from kvtally.pure.size import cache_types

# Every known line: how it is found, how it looks, and who explains it.
FORMS = {**explain_llama_cpp.FORMS, **explain_vllm.FORMS, **explain_sglang.FORMS}
LONGEST_TEXT = 10**5  # characters; more is a whole log rather than some of its lines


def explain(text: str, decoder: Decoder, **options: Any) -> Explanation:
    """What the first known line in `text` says, reproduced from the decoder; see `explain_all` for the options.

    >>> from kvtally.core.decoder import lesson
    >>> line = "KV self size = 0.06 MiB, K (f16): 0.03 MiB, V (f16): 0.03 MiB"
    >>> print(explain(line, lesson(), tokens=256))  # 256 * 2 * 64 * 2
    llama.cpp: K and V of all layers at full length, in MiB (an old line that says MB means MiB, too)
      printed   0.06 MiB, K 0.03 MiB, V 0.03 MiB
      computed  0.06 MiB, K 0.03 MiB, V 0.03 MiB: exact
      256 cells x 256 bytes in 1 layers = 65,536
      the line says no cells: 226 to 266 give what it prints
    """
    return explain_all(text, decoder, **options)[0]


def explain_all(
    text: str,
    decoder: Decoder,
    *,
    dtype: str = "bf16",
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    tensor_parallel: int = 1,
    block_size: int | None = None,
    tokens: int | None = None,
    memory: int | None = None,
    **rules: Any,
) -> tuple[Explanation, ...]:
    """What every known line in `text` says, reproduced from the decoder, in the order of the text.

    Types, devices and block size are those the engine ran with; llama.cpp's lines bring their own types.
    `tokens` is the context length and `memory` the bytes for the cache on one device, where no other line in
    `text` says them. `rules` are choices of vLLM (see `VllmRules`). Raises InputError for a text without a
    known line, naming the three nearest known forms, and for an option of an engine that prints none of them.
    """
    if len(text) > LONGEST_TEXT:
        raise InputError(
            f"the text has {len(text):,} characters, expected at most {LONGEST_TEXT:,}: some lines of a log"
        )
    given = rules if block_size is None else {"block_size": block_size, **rules}
    logged = Logged(
        types=cache_types(dtype, k_dtype=k_dtype, v_dtype=v_dtype, state_dtype=state_dtype),
        tensor_parallel=tensor_parallel,
        block_size=block_size,
        tokens=tokens,
        memory=memory,
        rules=choices("vllm", VllmRules, given),
        context=text,
    )
    found = _explained(text, decoder, logged)
    _require_used({one.engine for one in found}, logged, tuple(rules))
    return found


def _explained(text: str, decoder: Decoder, logged: Logged) -> tuple[Explanation, ...]:
    """What the known lines say, each by the first form that it has; an InputError where none is known."""
    found = []
    for line in text.splitlines():
        for pattern, _, explained in FORMS.values():
            if match := re.search(pattern, line):
                found.append(explained(match, decoder, logged))
                break
    if not found:
        raise InputError(
            f"{text.strip()[:120]!r} is no known line of a log; the nearest known are\n"
            + "\n".join(f"  {example}" for example in nearest(text)),
            hint="give the whole line as the engine prints it",
        )
    return tuple(found)


def _require_used(engines: set[str], logged: Logged, rules: tuple[str, ...]) -> None:
    """Nothing where an engine of the lines takes each option given; otherwise an InputError that names it."""
    if rules and "vLLM" not in engines:
        raise InputError(f"`{rules[0]}` is a choice of vLLM, and no line is one of vLLM's", hint="leave it out")
    if "llama.cpp" in engines:
        require_one_device(logged.tensor_parallel)
    if engines == {"llama.cpp"} and logged.block_size is not None:
        raise InputError(f"`block_size` is {logged.block_size}, and llama.cpp has no pages", hint="leave it out")


def nearest(text: str) -> list[str]:
    """The three known forms most like `text`: by words in common, then by spelling; numbers do not count."""
    words, spelling = _words(text[:400]), _without_numbers(text[:400])

    def alike(example: str) -> tuple[int, float]:
        ratio = SequenceMatcher(None, spelling, _without_numbers(example), autojunk=False).ratio()
        return len(words & _words(example)), ratio

    return sorted((example for _, example, _ in FORMS.values()), key=alike, reverse=True)[:3]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z_#^]{2,}", text.lower()))


def _without_numbers(text: str) -> str:
    return re.sub(r"[\d.,]+", "0", text.lower())
