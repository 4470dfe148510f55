"""GGUF architectures whose layers attend, all or nearly all of them, and how each is read."""

from __future__ import annotations

from collections.abc import Callable

from kvtally.core.decoder import Decoder
from kvtally.core.mlp import Mlp
from kvtally.pure.config_recurrent import further
from kvtally.pure.gguf_keys import Keys
from kvtally.pure.gguf_parts import (
    KV_HEADS,
    ROUTER,
    WIDTH,
    WINDOW,
    Windows,
    as_listed,
    attentions,
    by_kind,
    depth,
    everywhere,
    exaone4,
    having,
    in_turn,
    mlps,
    nowhere,
    stack,
)

Reader = Callable[[Keys], Decoder]


def attending(windows: Windows = nowhere, **mlp: int | bool | str) -> Reader:
    """A reader of decoders with these windows; `mlp` is for `mlps`."""
    return lambda k: stack(k, everywhere(k, attentions(k, windows(k))), mlps(k, **mlp))  # type: ignore[arg-type]


def afmoe(k: Keys) -> Decoder:
    """AFMoE: one of four layers sees everything; a matrix as wide as the values gates them."""
    mixers = everywhere(k, attentions(k, in_turn(4, optional=True)(k)))
    gates = [further((None, mixer.num_heads * mixer.value_dim)) for mixer in mixers]
    return stack(k, mixers, mlps(k), beside=gates)


def qwen(k: Keys) -> Decoder:
    """Qwen (1): `feed_forward_length` is that of gate and up together."""
    width = k.integer(WIDTH, least=2)
    half = k.derive(WIDTH, width // 2, "feed_forward_length / 2")
    return stack(k, everywhere(k, attentions(k, nowhere(k))), (Mlp(width=half),) * depth(k))


def llama4(k: Keys) -> Decoder:
    """Llama 4: chunks of 8,192, every fourth layer sees everything; nothing is cut where the file says window 0.

    llama.cpp runs the chosen experts only, and one shared expert as wide as the others.
    """
    if k.has(WINDOW) and k.integer(WINDOW) == 0:
        windows: tuple[int | None, ...] = (None,) * depth(k)
    else:
        windows = in_turn(4, default=8192, fixed=8192)(k)
    mixers = everywhere(k, attentions(k, windows, chunked=True))
    return stack(k, mixers, mlps(k, shared="expert"))


def mimo2(k: Keys) -> Decoder:
    """MiMo-V2: windows as the file lists them, with KV heads of their own; experts where a layer has a router."""
    mixers = everywhere(k, attentions(k, as_listed(k)))
    return stack(k, mixers, by_kind(k, having(k, ROUTER, "which layers have experts")))


def deci(k: Keys) -> Decoder:
    """Nemotron-NAS: layers without attention, with a matrix in its place, or without an MLP.

    A layer has no attention where `head_count` is 0, a matrix where `head_count_kv` is; no MLP where
    `feed_forward_length` is 0.
    """
    layers = depth(k)
    heads, kv = k.by_layer("attention.head_count", layers), k.by_layer(KV_HEADS, layers)
    mixers, widths = attentions(k, nowhere(k)), k.by_layer(WIDTH, layers)
    beside = [further((None, None)) if h and not n else () for h, n in zip(heads, kv, strict=True)]
    return stack(k, mixers, [Mlp(width=width) if width else None for width in widths], beside=beside)


GATED = (
    "llama", "mistral3", "qwen2", "qwen2vl", "qwen3", "gemma", "command-r", "olmo", "smollm3", "granite", "granitemoe",
    "exaone", "seed_oss", "stablelm", "baichuan", "xverse", "internlm2", "orion", "minicpm", "bitnet", "chatglm",
    "glm4", "qwen3vl", "refact", "hunyuan-dense", "ernie4_5", "openelm", "jais", "phi3",
    "olmoe", "phimoe", "dbrx", "minimax-m2",
    "deepseek", "dots1", "glm4moe", "bailingmoe", "hunyuan-moe", "ernie4_5-moe", "pangu-embedded", "maincoder",
)  # fmt: skip
WITHOUT_A_GATE = (
    "gpt2", "gptneox", "falcon", "phi2", "starcoder", "starcoder2", "bloom", "mpt", "codeshell", "nemotron",
    "apertus", "arcee", "jais2",
)  # fmt: skip

READERS: dict[str, Reader] = {
    **dict.fromkeys(GATED, attending()),
    **dict.fromkeys(WITHOUT_A_GATE, attending(gated=False)),
    "qwen": qwen,
    "qwen2moe": attending(split=True, gate=1, shared=WIDTH),
    **dict.fromkeys(("qwen3moe", "qwen3vlmoe"), attending(split=True)),
    "gemma2": attending(in_turn(2, default=4096)),
    "gemma3": attending(in_turn(6)),
    "cohere2": attending(in_turn(4)),
    "gpt-oss": attending(in_turn(2)),
    "olmo2": attending(in_turn(4, optional=True)),
    "exaone4": attending(exaone4),
    "afmoe": afmoe,
    "smallthinker": attending(in_turn(4, optional=True, fixed=4096, first=True)),
    "llama4": llama4,
    "deci": deci,
    "mimo2": mimo2,
}
