"""Count by watching the products PyTorch dispatches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.core.passes import PHASES, Pass
from kvtally.core.tally import NOT_COUNTED, Cell, Tally, Term
from kvtally.live.cache_seen import read_shared, read_unwritten, unwatch, watch_updates
from kvtally.live.harness import Convention, Step, as_found, convention, steps
from kvtally.live.layers_run import Order, running_order
from kvtally.live.names import Terms, is_first_layer, of_parameter, parts_of_a_layer, place
from kvtally.live.products import Kind, kind


def trace(model: Any, passes: Iterable[Pass], decoder: Decoder, *, calls: Convention | None = None) -> Tally:
    """What the passes cost on a real model: MACs, cache elements, states and comparisons as observed.

    Every product that PyTorch dispatches is attributed to the module it was made in, and by the
    module's name to layer and term: scores before the softmax of an attention module (qk), mixing
    after it (pv). `decoder` is asked for little: how a fused matrix splits into its terms (in
    proportion; where that is not exact all of it stays under the first term), MACs a pair (for
    comparisons), whether V is cached apart from K, and how long an encoder's output is. Cache
    elements are those handed to `update` and those that came back beyond them. `calls` says how a
    model is called that is not of transformers.

    The kernel is `dense`: what a dense kernel multiplies, whatever its mask. Not counted: what
    `uncounted` lists, with every product-like operation that was seen and has no term (a module with
    an unknown name, the rotary angles); recurrent states and element-wise multiply-and-sum scans.

    >>> from kvtally.core.mixer import Attention
    >>> from kvtally.core.mlp import Mlp
    >>> from kvtally.core.decoder import Layer
    >>> from kvtally.live.harness import build
    >>> llama = build(dict(model_type="llama", hidden_size=8, num_attention_heads=2, num_hidden_layers=1,
    ...                    intermediate_size=12, vocab_size=19))
    >>> layer = Layer(mixer=Attention(num_heads=2, num_kv_heads=2, head_dim=4), mlp=Mlp(width=12))
    >>> tally = trace(llama, [Pass(new=5)], Decoder(hidden_size=8, vocab_size=19, layers=(layer,)))
    >>> tally.macs["prefill", 0, Term.qk], tally.macs["prefill", 0, Term.q_proj]  # 2*4*5*5, 8*8*5
    (200, 320)
    """
    with as_found(model):
        calls = convention(model, source=source(decoder)) if calls is None else calls
        watch = _Watch(decoder=decoder)
        with _hooked(model, watch):
            for step in steps(calls, passes):
                with _observed(step, calls.parts, watch):
                    step.run()
    return watch.tally()


def source(decoder: Decoder) -> int | None:
    """The length of the encoder's output that the decoder says it attends to."""
    return next((layer.cross.tokens_held(0) for layer in decoder.layers if layer.cross), None)


PAIRS = frozenset({Term.qk, Term.cross_qk})
PRODUCT = frozenset({"product", "convolution"})


@dataclass(slots=True, eq=False)
class _Site:
    """A module as a product sees it: name, layer, and the terms of each of its products in turn.

    Most modules make one kind of product. An attention module makes scores, then mixes (`core`); a
    stack of experts goes through its matrices again and again, of known `sizes`. `turn` is where it
    is in the running call, `macs` what each turn has cost so far in each phase.
    """

    name: str
    layer: int | None = None
    turns: tuple[Terms, ...] = ()
    core: bool = False
    takes_turns: bool = False
    sizes: tuple[frozenset[int], ...] = ()
    turn: int = 0
    macs: Counter[tuple[str, int | None, int]] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class _Seen:
    """A product-like operation without a term: how often, how many MACs, its first and last shapes."""

    times: int = 0
    macs: int = 0
    first: str = ""
    last: str = ""


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Everything observed so far: `stack` are the modules that are running, `asked` the pass that is.

    `scored` are the sites of attention that have made scores in the running pass. `owners` are the
    terms of every parameter, by identity: some modules multiply with the matrix of another. `order`
    is which layer runs. `named` are products whose term does not follow from the module's turn.
    """

    decoder: Decoder
    owners: dict[int, Terms] = field(default_factory=dict)
    order: Order = field(default_factory=Order)
    named: Counter[tuple[str, int | None, Terms]] = field(default_factory=Counter)
    sites: list[_Site] = field(default_factory=list)
    stack: list[_Site] = field(default_factory=lambda: [_Site("the model")])
    asked: Pass | None = None
    scored: set[_Site] = field(default_factory=set)
    kv: Counter[Cell] = field(default_factory=Counter)
    states: int = 0
    seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)

    def product(self, found: Kind, operator: Any, args: tuple[Any, ...], out: Any) -> None:
        """Attribute one operation that is of some kind to the module that is running."""
        assert self.asked is not None
        site, phase = self.stack[-1], self.asked.phase
        if found.role == "softmax":
            site.turn = 1 if site.core else site.turn  # from here on an attention module mixes values
            return
        macs, layer = found.macs(args, out), self.order.layer_of(site.layer)
        if found.role == "attention" and site.core:
            site.macs[phase, layer, 0] += macs[0]
            site.macs[phase, layer, 1] += macs[1]
            self.scored.add(site)
        elif found.role == "convolution" and layer is not None and (site.core or not site.turns):
            needed = macs * min(self.asked.new, out.shape[-1]) // out.shape[-1]
            self.named[phase, layer, (Term.conv1d,)] += needed
            if macs > needed:
                self.without_term(site, operator, args, macs - needed, "positions beyond the new tokens")
        elif found.role in PRODUCT and _is_its_own(site, args) and self.attends(site, layer):
            site.macs[phase, layer, site.turn] += macs
            if site.core:
                self.scored.add(site)
            if site.takes_turns and self.sums(site, layer):
                site.turn = (site.turn + 1) % len(site.turns)
        elif found.role == "product" and (terms := self.owner(args)):
            self.named[phase, layer, terms] += macs
        else:
            self.without_term(site, operator, args, macs)

    def layers_scored(self, term: Term) -> set[int]:
        """Layers whose attention has made scores of this term in the running pass."""
        return {site.layer for site in self.scored if site.turns[0] == (term,) and site.layer is not None}

    def attends(self, site: _Site, layer: int | None) -> bool:
        """False for a module named like attention in a layer that has none: its products are those of a state."""
        if not site.core or site.turns[0][0] not in PAIRS or layer is None or layer >= len(self.decoder.layers):
            return True
        return any(site.turns[0][0] in mixer.pair_cost for mixer in self.decoder.layers[layer].mixers)

    def sums(self, site: _Site, layer: int | None) -> bool:
        """False for an indexer whose scores are summed as they are: it makes scores in every turn."""
        if not site.core or layer is None or layer >= len(self.decoder.layers):
            return True
        return any(Term.index_sum in mixer.pair_cost for mixer in self.decoder.layers[layer].mixers)

    def owner(self, args: tuple[Any, ...]) -> Terms:
        """The terms of the parameter among the arguments, whichever module holds it."""
        bases = (a if a._base is None else a._base for a in args if isinstance(a, torch.Tensor))
        return next((self.owners[id(base)] for base in bases if id(base) in self.owners), ())

    def macs(self) -> Counter[Cell]:
        """The products of all modules by phase, layer and term."""
        cells: Counter[Cell] = Counter()
        for site in self.sites:
            for (phase, layer, turn), made in site.macs.items():
                needed = self.needed(site, layer, turn, made)
                cells[phase, layer, Term.surplus] += made - needed
                for term, n in self.split(layer, site.turns[turn], needed):
                    cells[phase, layer, term] += n
        for (phase, layer, terms), macs in self.named.items():
            for term, n in self.split(layer, terms, macs):
                cells[phase, layer, term] += n
        return cells

    def needed(self, site: _Site, layer: int | None, turn: int, macs: int) -> int:
        """Those MACs that are no surplus: all, unless transformers runs every expert, or scores a pair again."""
        known = self.decoder.layers[layer] if layer is not None and layer < len(self.decoder.layers) else None
        if known and site.sizes and known.mlp:
            chosen, run = known.mlp.needed
            return macs * chosen // run
        if known and site.core and site.turns[turn] == (Term.qk,) and (again := sum(known.surplus_a_pair)):
            once = sum(mixer.pair_cost.get(Term.qk, 0) for mixer in known.mixers)
            return macs * once // (once + again)
        return macs

    def split(self, layer: int | None, terms: Terms, macs: int) -> list[tuple[Term, int]]:
        """MACs of one matrix by term, in proportion to the decoder's; under the first term where inexact."""
        if len(terms) == 1 or layer is None or layer >= len(self.decoder.layers):
            return [(terms[0], macs)]
        known = self.decoder.layers[layer]
        shares = known.projections(self.decoder.hidden_size)
        for mixer in known.mixers:
            shares |= mixer.expansions(self.decoder.hidden_size)
        parts = [shares.get(term, 0) for term in terms]
        whole = sum(parts)
        if not whole or any(macs * part % whole for part in parts):
            return [(terms[0], macs)]
        return [(term, macs * part // whole) for term, part in zip(terms, parts, strict=True)]

    def without_term(self, site: _Site, operator: Any, args: tuple[Any, ...], macs: Any, why: str = "") -> None:
        shapes = " x ".join(str(tuple(a.shape)) for a in args if isinstance(a, torch.Tensor))
        name = operator.name().partition("::")[2] or operator.name()
        entry = self.seen.setdefault((site.name, f"{name}, {why}:" if why else name), _Seen())
        entry.times += 1
        entry.macs += sum(macs) if isinstance(macs, tuple) else macs
        entry.first, entry.last = entry.first or shapes, shapes

    def moved(self, layer: int, keys: tuple[int, int], values: tuple[int, int]) -> None:
        """Elements written and read by one layer: (written, read) of keys and of values, as the cache names them."""
        assert self.asked is not None
        phase, v, layer = self.asked.phase, "v", self.order.cached(layer)
        if layer < len(self.decoder.layers):
            mixer = self.decoder.layers[layer].mixer
            v = "k" if mixer is not None and mixer.kv_per_token[1] == 0 else "v"
        for name, (written, read) in (("k", keys), (v, values)):
            self.kv[phase, layer, f"{name}_write"] += written if self.asked.keep else 0
            self.kv[phase, layer, f"{name}_read"] += read

    def tally(self) -> Tally:
        macs = self.macs()
        return Tally(
            macs=macs,
            kv=self.kv,
            states=self.states,
            comparisons=_comparisons(self.decoder, macs),
            kernel="dense",
            road="traced",
            uncounted=(*NOT_COUNTED, *(_sentence(*where, entry) for where, entry in self.seen.items())),
        )


def _comparisons(decoder: Decoder, macs: Counter[Cell]) -> Counter[tuple[str, int | None]]:
    """Query-key pairs: MACs of scores over MACs a pair. A rest would show in the cell of those MACs."""
    pairs: Counter[tuple[str, int | None]] = Counter()
    for index, layer in enumerate(decoder.layers):
        for mixer in layer.mixers:
            for term in {Term.qk, Term.cross_qk, Term.index_qk}.intersection(mixer.pair_cost):
                for phase in PHASES:
                    pairs[phase, index] += macs[phase, index, term] // mixer.pair_cost[term]
    return pairs


def _is_its_own(site: _Site, args: tuple[Any, ...]) -> bool:
    """Whether a product is one that the module is known to make.

    In an attention module that is a product of two activations; in a stack of experts one that has
    the sizes of the matrices whose turn it is.
    """
    if site.core:
        return not any(_is_weight(a) for a in args)
    if site.sizes:
        seen = {size for a in args if isinstance(a, torch.Tensor) for size in a.shape[-2:]}
        return site.sizes[site.turn] <= seen
    return bool(site.turns)


def _is_weight(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and isinstance(
        value if value._base is None else value._base, torch.nn.Parameter
    )


def _sentence(module: str, operator: str, entry: _Seen) -> str:
    shapes = entry.first if entry.first == entry.last else f"{entry.first} … {entry.last}"
    macs = f"{entry.macs:,} MACs" if entry.macs else "MACs unknown"
    return f"{module}: {operator} {shapes}, {entry.times:,} times, {macs}"


class _Mode(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operation; only those of some kind cost more than a look-up."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep __torch_dispatch__ as it is: nothing is compiled here, and the wrapper costs a fifth of a step."""
        return False

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.product = watch.product

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        found = kind(func)
        if found is not None:
            self.product(found, func, args, out)
        return out


@contextmanager
def _hooked(model: Any, watch: _Watch) -> Iterator[None]:
    """Hooks that keep `watch.stack`, and count the rows that enter layer 0; removed afterwards."""
    hooks: list[Any] = []
    try:
        parts = parts_of_a_layer(name for name, _ in model.named_modules())
        watch.owners = {id(p): terms for name, p in model.named_parameters() if (terms := of_parameter(name))}
        watch.order, hooks = running_order(model, len(watch.decoder.layers), parts)
        for name, module in model.named_modules():
            if name and _may_multiply(module):
                watch.sites.append(_site(name, module, parts))
                enter, leave = _steps_of(watch.sites[-1], watch.stack)
                hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        layers = [module for name, module in model.named_modules() if is_first_layer(name)]
        if not layers:
            raise InputError(
                f"{type(model).__name__} has no module whose name ends in `.0`, expected its first layer there",
                hint="keep the layers in a torch.nn.ModuleList, whose numbers name them",
            )
        hooks += [layer.register_forward_pre_hook(_rows_of(watch), with_kwargs=True) for layer in layers]
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _may_multiply(module: Any) -> bool:
    """Whether it is worth knowing that `module` runs: norms, activations and dropout multiply no matrices.

    Should one of those do after all, its product is seen as one of the module around it.
    """
    if next(module.children(), None) is not None:
        return True
    if isinstance(module, torch.nn.Embedding):
        return False
    held = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return any(p.dim() > 1 for p in held) or bool(next(module.buffers(recurse=False), None) is not None)


def _site(name: str, module: Any, parts: int) -> _Site:
    where = place(name, parts)
    if where.core:
        indexes = where.core[0] == Term.index_qk  # scores, then their sum, with no softmax in between
        return _Site(name, where.layer, tuple((term,) for term in where.core), core=True, takes_turns=indexes)
    stacks = [(own, p) for own, p in module.named_parameters(recurse=False) if p.dim() == 3]
    turns = tuple(place(f"{name}.{own}", parts).terms for own, _ in stacks)
    if stacks and where.layer is not None and all(turns):
        sizes = tuple(frozenset(p.shape[1:]) for _, p in stacks)
        return _Site(name, where.layer, turns, takes_turns=True, sizes=sizes)
    return _Site(name, where.layer, (where.terms,) if where.terms else ())


def _steps_of(site: _Site, stack: list[_Site]) -> tuple[Callable[..., None], Callable[..., None]]:
    def enter(_module: Any, _args: Any) -> None:
        site.turn = 0
        stack.append(site)

    def leave(_module: Any, _args: Any, _out: Any) -> None:
        stack.pop()

    return enter, leave


def _rows_of(watch: _Watch) -> Callable[..., None]:
    def enter(_module: Any, args: Any, kwargs: Any) -> None:
        if watch.asked is not None and not watch.order.again:
            hidden = next(a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor))
            watch.states += _rows(hidden)

    return enter


def _rows(hidden: Any) -> int:
    """Token states in what enters a layer: streams of one token, in front of its position or behind it, are one."""
    if hidden.dim() < 4:
        return int(hidden.shape[:-1].numel())
    return int(hidden.shape[1] if hidden.shape[0] == 1 else hidden.shape[1:-1].numel())


@contextmanager
def _observed(step: Step, parts: Callable[[Any], tuple[Any, ...]], watch: _Watch) -> Iterator[None]:
    """One pass under observation: its products by a dispatch mode, its cache by its `update`."""
    watch.asked = step.asked
    watch.scored.clear()
    watch.order.restart()
    caches = () if step.cache is None else parts(step.cache)
    read = [watch_updates(cache, watch.moved) for cache in caches]
    try:
        with _Mode(watch):
            yield
        if caches:
            read_unwritten(caches[-1], read[-1], watch.layers_scored(Term.cross_qk), watch.moved)
            donors = {i: layer.reads for i, layer in enumerate(watch.decoder.layers) if layer.reads is not None}
            read_shared(donors, read[0], watch.layers_scored(Term.qk), watch.moved)
    finally:
        watch.asked = None
        for cache in caches:
            unwatch(cache)
