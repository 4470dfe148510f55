"""Count by formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.mixer import Mixer
from kvtally.core.passes import Pass
from kvtally.core.tally import Cell, Tally, Term


def count(decoder: Decoder, passes: Iterable[Pass], *, kernel: str = "causal") -> Tally:
    """The multiplications (MACs), cache elements, token states and comparisons of the passes, by formula.

    For every layer: MACs a token * tokens, MACs a pair * pairs, MACs an expanded token * tokens
    expanded; plus the matrices outside the layers, and hidden_size * vocab_size (what `Decoder.head`
    makes of hidden_size, where there is one) for each row of logits. No step loops over tokens, so any
    length answers at once. `kernel="causal"` counts the pairs that the mask allows, `"dense"` the
    rectangle that a dense kernel multiplies, and the surplus that transformers makes. Not counted: what
    `Tally.uncounted` lists.
    Formulas: derived here; they agree with Kaplan et al. (arXiv:2001.08361) and Hoffmann et al.
    (arXiv:2203.15556) where those have a term.

    >>> from kvtally.core.decoder import lesson
    >>> from kvtally.core.passes import cached, uncached
    >>> count(lesson(), cached(1, 100)).total      # 3*64*64*100 + 2*64*5050
    1875200
    >>> count(lesson(), uncached(1, 100, loop="lesson")).states  # 1 + 2 + ... + 100
    5050
    """
    macs: Counter[Cell] = Counter()
    kv: Counter[Cell] = Counter()
    comparisons: Counter[tuple[str, int | None]] = Counter()
    states = 0
    last = len(decoder.layers) - 1
    for p in passes:
        known: dict[tuple[Layer, bool], _LayerWork] = {}
        for index, layer in enumerate(decoder.layers):
            key = (layer, index == last)
            if key not in known:
                known[key] = _layer_work(decoder.hidden_size, layer, p, p.attending if index == last else None, kernel)
            work_macs, work_kv, pairs = known[key]
            for term, n in work_macs.items():
                macs[p.phase, index, term] += n
            for cell, n in work_kv.items():
                kv[p.phase, index, cell] += n
            comparisons[p.phase, index] += pairs
        for term, n in _outside(decoder, p).items():
            macs[p.phase, None, term] += n
        states += p.tokens
    return Tally(macs=macs, kv=kv, states=states, comparisons=comparisons, kernel=kernel, road="closed")


def _outside(decoder: Decoder, p: Pass) -> dict[Term, int]:
    """MACs outside the layers over all passes of `p`: of every token, and of every row of logits."""
    rows = p.times * p.logits
    return {
        Term.embed_proj: p.tokens * sum(inputs * outputs for inputs, outputs in decoder.outside),
        Term.head_proj: rows * sum(inputs * outputs for inputs, outputs in decoder.head),
        Term.lm_head: rows * decoder.head_inputs * decoder.vocab_size,
    }


_LayerWork = tuple[Counter[Term], Counter[str], int]  # MACs by term, cache elements by cell, pairs


def _layer_work(hidden: int, layer: Layer, p: Pass, attending: int | None, kernel: str) -> _LayerWork:
    """MACs by term, cache elements by cell and comparisons of one layer over all passes of `p`."""
    macs: Counter[Term] = Counter()
    kv: Counter[str] = Counter()
    pairs = 0
    rows = p.tokens if attending is None else attending * p.times
    for term, n in layer.for_every_token(hidden).items():
        macs[term] += n * p.tokens
    for term, n in layer.for_attending_rows(hidden).items():
        macs[term] += n * rows
    if kernel == "dense":
        macs[Term.surplus] += layer.surplus(hidden) * rows
    for mixer, writes, again in zip(layer.mixers, layer.writers, layer.surplus_a_pair, strict=True):
        own = mixer.pairs(p, kernel, attending)
        pairs += own
        if kernel == "dense":
            macs[Term.surplus] += again * own
        for term, n in mixer.pair_cost.items():
            macs[term] += n * own
        for term, n in mixer.expansions(hidden).items():
            macs[term] += n * mixer.expanded(p)
        kv += _moved(mixer, p, writes=writes)
    return macs, kv, pairs


def _moved(mixer: Mixer, p: Pass, *, writes: bool) -> Counter[str]:
    """Cache elements that one mixer writes and reads over all passes of `p`."""
    k, v = mixer.kv_per_token
    written, read = mixer.written(p) if writes else 0, mixer.read(p)
    state = mixer.state * p.times if p.keep else 0
    return Counter(k_write=k * written, v_write=v * written, k_read=k * read, v_read=v * read, state=state)
