"""llama.cpp's lines of its caches: cells, layers, K and V; recurrent memory; the older total."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from re import Match

from kvtally.core.decoder import Decoder
from kvtally.core.dtype import Dtype, dtype
from kvtally.core.errors import InputError
from kvtally.pure.engine_llama_cpp import mib, without_any
from kvtally.pure.engine_parts import Kept, kept
from kvtally.pure.explained import COUNT, DECIMAL, Explanation, Logged, interval, off, whole

SIZE = (
    rf"llama_kv_cache\w*: +size = +(?P<total>{DECIMAL}) MiB \( *(?P<cells>{COUNT}) cells, +(?P<layers>{COUNT}) layers, "
    rf"+(?P<seqs>{COUNT})(?:/ *(?P<streams>{COUNT}))? seqs\), K \((?P<kt>\w+)\): +(?P<k>{DECIMAL}) MiB, "
    rf"V \((?P<vt>\w+)\): +(?P<v>{DECIMAL}) MiB"
)
RECURRENT = (
    rf"llama_memory_recurrent: +size = +(?P<total>{DECIMAL}) MiB \( *(?P<cells>{COUNT}) cells, "
    rf"+(?P<layers>{COUNT}) layers, +(?P<seqs>{COUNT}) seqs(?: +(?P<snapshots>{COUNT}) rs_seq)?\), "
    rf"R \((?P<kt>\w+)\): +(?P<k>{DECIMAL}) MiB, S \((?P<vt>\w+)\): +(?P<v>{DECIMAL}) MiB"
)
SELF = (
    rf"(?:KV|kv) self size *= +(?P<total>{DECIMAL}) Mi?B(?:, (?:K|c\^KV) \((?P<kt>\w+)\): +(?P<k>{DECIMAL}) MiB"
    rf"(?:, V \((?P<vt>\w+)\): +(?P<v>{DECIMAL}) MiB|, kv\^T: not used)?)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Layers that one cache may be of, and bytes of K and of V that a cell takes.

    `empty` layers of the model keep nothing, and llama.cpp may count them or not.
    """

    name: str
    layers: int
    k: int
    v: int
    empty: int = 0

    @property
    def counted(self) -> tuple[int, int]:
        """How many layers a line may count."""
        return self.layers, self.layers + self.empty


def explain_size(found: Match[str], decoder: Decoder, _: Logged) -> Explanation:
    """Reproduces a cache of so many cells: of full layers, of sliding ones, or of all."""
    cells, streams = whole(found["cells"]), whole(found["streams"] or "1")
    k_type, v_type = (dtype(found[name], what="type in the line") for name in ("kt", "vt"))
    printed = (found["total"], found["k"], found["v"])
    choices = candidates(decoder, k_type, v_type)
    rows = cells * streams
    counted, times = whole(found["layers"]), f"{cells:,} cells x {_many(streams, 'stream')}"
    best = min(choices, key=lambda c: (counted not in c.counted, _three(c, rows) != printed))
    same = _three(best, rows) == printed and counted in best.counted
    notes = [f"{cells:,} cells: what a sequence may use, filled up to a multiple of 256; {best.name}"]
    if not same:
        notes += _why(found, best, rows, counted)
    return Explanation(
        line=found.string,
        engine="llama.cpp",
        quantity=f"all cells of the cache of {best.name}, in MiB",
        printed=_said(printed),
        computed=_said(_three(best, rows)),
        status="exact" if same else "differs",
        arithmetic=(
            f"K: {times} x {best.k:,} bytes in {best.layers} layers = {rows * best.k:,}",
            f"V: {times} x {best.v:,} bytes in {best.layers} layers = {rows * best.v:,}",
        ),
        notes=tuple(notes),
    )


def explain_recurrent(found: Match[str], decoder: Decoder, _: Logged) -> Explanation:
    """Reproduces recurrent memory: one cell a sequence, float32, whatever the type of K and V; all layers count."""
    cells = whole(found["cells"]) * (1 + whole(found["snapshots"] or "0"))
    r_type, s_type = (dtype(found[name], what="type in the line") for name in ("kt", "vt"))
    parts = [part for part in kept(decoder) if part.kind == "recurrent"]
    of = Layers(
        name="recurrent layers",
        layers=len(parts),
        k=sum(r_type.row(part.elements("conv")) for part in parts),
        v=sum(s_type.row(part.elements("state")) for part in parts),
    )
    printed = (found["total"], found["k"], found["v"])
    sized, counted = _three(of, cells) == printed, whole(found["layers"])
    notes = [] if sized else [off(Fraction(printed[0]) * 2**20, cells * (of.k + of.v))]
    if counted != len(decoder.layers):
        notes.append(_miscounted(counted, f"{len(decoder.layers)}", by_chance=sized))
    return Explanation(
        line=found.string,
        engine="llama.cpp",
        quantity="recurrent memory of all sequences, in MiB: R inputs of convolutions, S states",
        printed=_said(printed, "RS"),
        computed=_said(_three(of, cells), "RS"),
        status="differs" if notes else "exact",
        arithmetic=(
            f"R: {cells} cells x {of.k:,} bytes in {of.layers} recurrent layers = {cells * of.k:,}",
            f"S: {cells} cells x {of.v:,} bytes in {of.layers} recurrent layers = {cells * of.v:,}",
        ),
        notes=tuple(notes),
    )


def explain_self(found: Match[str], decoder: Decoder, logged: Logged) -> Explanation:
    """Reproduces the older line, which says no cells: from the tokens given, or the cells that it implies."""
    k_type = dtype(found["kt"], what="type in the line") if found["kt"] else logged.types.k
    v_type = dtype(found["vt"], what="type in the line") if found["vt"] else (k_type if found["kt"] else logged.types.v)
    of = candidates(decoder, k_type, v_type)[0]
    each = of.k + of.v
    printed = tuple(text for text in (found["total"], found["k"], found["v"]) if text)
    low, high = interval(found["total"], 2**20)
    implied = (-(-low // each), high // each)
    cells = logged.tokens if logged.tokens is not None else int(implied[0])
    same = _three(of, cells)[: len(printed)] == printed
    note = f"the line says no cells: {int(implied[0]):,} to {int(implied[1]):,} give what it prints"
    if implied[0] > implied[1]:
        note = "the line says no cells, and no whole number of them gives what it prints"
    exact = same and logged.tokens is not None
    return Explanation(
        line=found.string,
        engine="llama.cpp",
        quantity="K and V of all layers at full length, in MiB (an old line that says MB means MiB, too)",
        printed=_said(printed),
        computed=_said(_three(of, cells)[: len(printed)]),
        status="exact" if exact else "consistent" if same else "differs",
        arithmetic=(f"{cells:,} cells x {each:,} bytes in {of.layers} layers = {cells * each:,}",),
        notes=(note,) if same else (note, off(Fraction(printed[0]) * 2**20, cells * each)),
    )


def candidates(decoder: Decoder, k_type: Dtype, v_type: Dtype) -> list[Layers]:
    """The layers that a cache may be of: all, those that see everything, those that slide."""
    parts = kept(decoder)
    own = [part for part in parts if part.kind in ("full", "sliding", "chunked")]
    if not own:
        raise InputError("no layer of the model keeps K and V, expected one that a line of llama.cpp can be of")
    full, slides = ([part for part in own if (part.limit is None) == everything] for everything in (True, False))
    named = {"all layers": own, "layers that see everything": full, "sliding layers": slides}
    empty = 0 if any(part.kind == "recurrent" for part in parts) else without_any(decoder, own)
    return [_layers(name, parts, k_type, v_type, empty) for name, parts in named.items() if parts]


def _layers(name: str, parts: list[Kept], k_type: Dtype, v_type: Dtype, empty: int) -> Layers:
    return Layers(
        name=name,
        layers=len(parts),
        k=sum(k_type.row(part.elements("k", "latent")) for part in parts),
        v=sum(v_type.row(part.elements("v")) for part in parts),
        empty=empty,
    )


def _three(of: Layers, rows: int) -> tuple[str, str, str]:
    return mib(rows * (of.k + of.v)), mib(rows * of.k), mib(rows * of.v)


def _many(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _said(sizes: tuple[str, ...], names: str = "KV") -> str:
    return ", ".join(
        f"{name}{size} MiB" for name, size in zip(("", f"{names[0]} ", f"{names[1]} "), sizes, strict=False)
    )


def _why(found: Match[str], best: Layers, rows: int, counted: int) -> list[str]:
    """By how much the line and the model differ, and in what: the layers counted, or a cell of a layer."""
    total, computed = Fraction(found["total"]) * 2**20, rows * (best.k + best.v)
    notes = [] if mib(computed) == found["total"] else [off(total, computed)]
    if counted not in best.counted:
        return [*notes, _miscounted(counted, f"{best.layers} that keep K and V", by_chance=not notes)]
    if not rows:
        return notes
    ours = Fraction(best.k + best.v, best.layers)
    each = f"{float(total / rows / best.layers):,.1f}"
    return [*notes, f"the line gives {each} bytes a cell and layer, the model {float(ours):,.1f}"]


def _miscounted(counted: int, having: str, *, by_chance: bool) -> str:
    chance = "the size is the same by chance: " if by_chance else ""
    return f"{chance}the line counts {counted} layers, the model has {having}"


FORMS: dict[str, tuple[str, str, Callable[[Match[str], Decoder, Logged], Explanation]]] = {
    "llama.cpp cache": (
        SIZE,
        "llama_kv_cache: size = 544.00 MiB ( 8192 cells, 16 layers, 1/1 seqs), K (q8_0): 272.00 MiB, "
        "V (q8_0): 272.00 MiB",
        explain_size,
    ),
    "llama.cpp recurrent memory": (
        RECURRENT,
        "llama_memory_recurrent: size = 23.75 MiB ( 1 cells, 64 layers, 1 seqs), R (f32): 3.75 MiB, S (f32): 20.00 MiB",
        explain_recurrent,
    ),
    "llama.cpp total": (SELF, "KV self size = 9.00 MiB, K (f16): 4.50 MiB, V (f16): 4.50 MiB", explain_self),
}
