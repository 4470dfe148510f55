"""SGLang's line of a pool: tokens, K and V."""

from __future__ import annotations

from collections.abc import Callable
from re import Match

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.pure.engine_parts import Kept, kept
from kvtally.pure.engine_sglang import SglangRules, gigabytes, pool
from kvtally.pure.explained import COUNT, DECIMAL, Explanation, Logged, off, whole

POOL = (
    rf"KV Cache is allocated\.(?: dtype: [\w.]+,)? #tokens: (?P<tokens>{COUNT}), K size: (?P<k>{DECIMAL}) GB, "
    rf"V size: (?P<v>{DECIMAL}) GB"
)


def explain_pool(found: Match[str], decoder: Decoder, logged: Logged) -> Explanation:
    """Reproduces K and V of the pool that these tokens give: of full layers, of sliding ones, or of all."""
    tokens = whole(found["tokens"])
    printed = f"K {found['k']} GB, V {found['v']} GB"
    tried = []
    for name, parts in pools(kept(decoder, tensor_parallel=logged.tensor_parallel)):
        rules = SglangRules(page_size=logged.block_size or 1)
        sizes = pool(parts, tokens, types=logged.types, rules=rules)
        k = sum(n for (_, part), n in sizes.items() if part in ("k", "latent"))
        v = sum(n for (_, part), n in sizes.items() if part == "v")
        computed = f"K {gigabytes(k)} GB, V {gigabytes(v)} GB"
        tried.append((computed == printed, abs(k - float(found["k"]) * 2**30), name, parts, k, v, computed))
    same, _, name, parts, k, v, computed = min(tried, key=lambda row: (not row[0], row[1]))
    page = logged.block_size or 1
    rows = tokens + page
    return Explanation(
        line=found.string,
        engine="SGLang",
        quantity=f"K and V of the pool of {name} on one device, GB meaning 2^30 bytes",
        printed=printed,
        computed=computed,
        status="exact" if same else "differs",
        arithmetic=(
            f"K: ({tokens:,} tokens + a page of {page}) x {k // rows:,} bytes in {len(parts)} layers = {k:,}",
            f"V: ({tokens:,} tokens + a page of {page}) x {v // rows:,} bytes in {len(parts)} layers = {v:,}",
        ),
        notes=()
        if same
        else (off(round(float(found["k"]) * 2**30), k) + ": is it this model, type and device count?",),
    )


def pools(parts: tuple[Kept, ...]) -> list[tuple[str, tuple[Kept, ...]]]:
    """The layers that a pool may be of."""
    own = tuple(part for part in parts if part.kind in ("full", "sliding", "chunked"))
    full = tuple(part for part in own if part.limit is None)
    slides = tuple(part for part in own if part.limit is not None)
    found = [("full layers", full), ("sliding layers", slides), ("all layers", own)]
    if not own:
        raise InputError("no layer of the model keeps K and V, expected one that a pool of SGLang can be of")
    return [(name, of) for name, of in found if of]


FORMS: dict[str, tuple[str, str, Callable[[Match[str], Decoder, Logged], Explanation]]] = {
    "SGLang pool": (POOL, "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB", explain_pool),
}
