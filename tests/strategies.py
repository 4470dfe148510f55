"""Hypothesis strategies: small random decoders of every kind, and lists of passes.

Sizes are drawn unlike each other, so that no two can be mistaken for one another by chance alone.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from kvtally.core.compressed_mixer import CompressedAttention
from kvtally.core.decoder import Decoder, Layer
from kvtally.core.indexer_mixer import Indexer
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import Attention, CrossAttention, Mixer
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.passes import Pass, cached, chunked, conversation, edited, prefix_hit, uncached
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term

small = st.integers(1, 3)


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """MHA, GQA and MQA; full, windowed or chunked; values as wide as keys or not."""
    kv = draw(small)
    limit = draw(st.sampled_from(["none", "window", "chunk", "top_k"]))
    gated, k_is_v = draw(st.sampled_from([(False, False)] * 3 + [(True, False), (False, True)]))
    return Attention(
        num_heads=kv * draw(small),
        num_kv_heads=kv,
        head_dim=draw(st.integers(1, 4)),
        v_head_dim=None if gated or k_is_v else draw(st.none() | st.integers(1, 4)),
        gated=gated,
        k_is_v=k_is_v,
        window=draw(st.integers(1, 6)) if limit == "window" else None,
        chunk=draw(st.integers(1, 6)) if limit == "chunk" else None,
        top_k=draw(small) if limit == "top_k" else None,
        block=draw(small) if limit == "top_k" else 1,
        inputs=draw(st.none() | st.integers(1, 6)),
        output=draw(st.booleans()),
        differential=kv % 2 == 0 and draw(st.booleans()),
        value_mask=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def latent_attentions(draw: st.DrawFn) -> LatentAttention:
    """Latent attention with and without a query latent, a gate, a window, a choice; absorbed or not."""
    rank = draw(st.none() | small)
    limit = draw(st.sampled_from(["none", "window", "top_k"]))
    absorbed = draw(st.booleans())
    return LatentAttention(
        num_heads=draw(small),
        kv_lora_rank=draw(st.integers(1, 4)),
        qk_rope_head_dim=draw(st.integers(0, 2)),
        qk_nope_head_dim=draw(small),
        v_head_dim=draw(st.integers(1, 4)),
        q_lora_rank=rank,
        absorbed=absorbed,
        per_head=not absorbed and draw(st.booleans()),
        window=draw(st.integers(1, 6)) if limit == "window" else None,
        top_k=draw(small) if limit == "top_k" else None,
        gated=rank is not None and draw(st.booleans()),
    )


latents = latent_attentions()
indexers = st.builds(
    Indexer,
    num_heads=small,
    head_dim=st.integers(1, 4),
    q_lora_rank=st.none() | small,
    weighted=st.booleans(),
    ratio=st.sampled_from([1, 1, 2, 3]),
    averaged=st.booleans(),
)


@st.composite
def compressed(draw: st.DrawFn) -> CompressedAttention:
    """A window with and without compressed entries, all of them seen or a choice."""
    groups, ratio = draw(st.integers(1, 2)), draw(st.none() | st.integers(2, 4))
    return CompressedAttention(
        num_heads=groups * draw(st.integers(1, 2)),
        head_dim=draw(small),
        window=draw(st.integers(1, 5)),
        q_lora_rank=draw(small),
        o_lora_rank=draw(small),
        o_groups=groups,
        ratio=ratio,
        overlap=ratio is not None and draw(st.booleans()),
        top_k=draw(st.none() | small) if ratio else None,
    )


@st.composite
def crosses(draw: st.DrawFn) -> CrossAttention:
    """Attention to an encoder's output."""
    kv = draw(small)
    return CrossAttention(
        num_heads=kv * draw(small),
        num_kv_heads=kv,
        head_dim=draw(small),
        source=draw(st.integers(1, 5)),
        source_size=draw(st.none() | small),
    )


@st.composite
def recurrents(draw: st.DrawFn) -> Recurrent:
    """Linear attention, state-space models and short convolutions, with and without each part."""
    inner = st.sampled_from([Term.in_proj, Term.x_proj, Term.dt_proj, Term.q_proj, Term.k_proj, Term.v_proj])
    size = st.none() | st.integers(1, 5)
    matrices = draw(st.lists(st.tuples(inner, size, size), max_size=3))
    if draw(st.booleans()):
        matrices.append((draw(st.sampled_from([Term.out_proj, Term.o_proj])), draw(size), None))
    group = draw(st.integers(1, 2))
    return Recurrent(
        matrices=tuple(matrices),
        conv_channels=draw(st.integers(0, 4)) * group,
        conv_kernel=draw(st.integers(1, 4)),
        conv_group=group,
        conv_dynamic=draw(st.booleans()),
        num_heads=draw(st.integers(0, 2)),
        key_dim=draw(small),
        value_dim=draw(small),
        delta=draw(st.booleans()),
        shifted=draw(st.integers(0, 3)),
        scanned=draw(st.integers(0, 3)),
    )


@st.composite
def experts(draw: st.DrawFn) -> Experts:
    """A router, experts, and a shared part with or without a gate."""
    number, shared = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    return Experts(
        num_experts=number,
        per_token=draw(st.integers(1, number)),
        width=draw(small),
        gated=draw(st.booleans()),
        shared=shared,
        shared_gate=draw(st.integers(0, 2)) if shared else 0,
        all_run=draw(st.booleans()),
        router=draw(st.just(()) | st.lists(small, max_size=2).map(tuple)),
        latent=draw(st.none() | small),
    )


mixers: st.SearchStrategy[Mixer | None] = (
    st.none() | attentions() | attentions() | latents | recurrents() | compressed()
)
mlps = st.none() | st.builds(Mlp, width=st.integers(1, 5), gated=st.booleans()) | experts()
layers = st.builds(
    Layer,
    mixer=mixers,
    mlp=mlps,
    cross=st.none() | st.none() | crosses(),
    beside=st.just(()) | st.tuples(attentions() | recurrents() | indexers),
)


@st.composite
def decoders(draw: st.DrawFn) -> Decoder:
    """One to three layers of any kind, the later ones sharing K and V of an earlier one or not."""
    stack = draw(st.lists(layers, min_size=1, max_size=3))
    for index in range(1, len(stack)):
        donors = [i for i in range(index) if stack[i].reads is None and _has_kv(stack[i])]
        if donors and draw(st.booleans()):
            stack[index] = draw(_sharing(stack[index], donors[-1], stack[donors[-1]].mixer))
    sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=2).map(tuple)
    return Decoder(
        hidden_size=draw(st.integers(1, 5)),
        vocab_size=draw(st.sampled_from([0, 1, 3, 6])),
        layers=tuple(stack),
        outside=draw(st.just(()) | sizes),
        head=draw(st.just(()) | sizes),
    )


def _has_kv(layer: Layer) -> bool:
    return isinstance(layer.mixer, Attention | LatentAttention)


@st.composite
def _sharing(draw: st.DrawFn, layer: Layer, donor: int, mixer: Attention | LatentAttention) -> Layer:
    """`layer` with an attention of its own span and query heads, over K and V of the layer `donor`."""
    if isinstance(mixer, LatentAttention):
        if mixer.per_head:
            return replace(layer, mixer=mixer, reads=donor)
        return replace(layer, mixer=replace(mixer, num_heads=draw(small), absorbed=draw(st.booleans())), reads=donor)
    limit = draw(st.integers(1, 6))
    free = {"window": None, "chunk": None, "top_k": None, "block": 1}
    own = {name: getattr(mixer, name) for name in free}
    spans = [own, free, free | {"window": limit}, free | {"chunk": limit}, free | {"top_k": limit, "block": 2}]
    num_heads = mixer.num_kv_heads * draw(small)
    return replace(layer, mixer=replace(mixer, num_heads=num_heads, **draw(st.sampled_from(spans))), reads=donor)


@st.composite
def single_passes(draw: st.DrawFn) -> Pass:
    """A pass made by hand, whatever went before: any past, repeated or not, kept or not."""
    new, keep, times = draw(st.integers(1, 6)), draw(st.booleans()), draw(st.integers(1, 3))
    attending = draw(st.none() | st.integers(1, new))
    if keep and times > 1 and attending is not None:
        attending = new
    return Pass(
        new=new,
        past=draw(st.integers(0, 8)),
        phase=draw(st.sampled_from(["prefill", "decode"])),
        logits=draw(st.integers(0, new if attending is None else attending)),
        attending=attending,
        keep=keep,
        times=times,
    )


@st.composite
def pass_lists(draw: st.DrawFn) -> tuple[Pass, ...]:
    """Every named list of passes, and lists made by hand."""
    prompt, new = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    before = draw(st.integers(0, prompt - 1))
    turns = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3))
    lists = {
        "forward": lambda: uncached(prompt, new, loop="forward"),
        "lesson": lambda: uncached(prompt, new, loop="lesson"),
        "cached": lambda: cached(prompt, new),
        "chunked": lambda: chunked(prompt, new, draw(st.integers(1, 4))),
        "edited": lambda: edited(prompt, before, new),
        "prefix hit": lambda: prefix_hit(prompt, before, new),
        "edited after cached": lambda: (*cached(prompt, new), *edited(prompt, before, new)),
        "carried": lambda: conversation(turns, carried=True),
        "resent": lambda: conversation(turns, carried=False),
        "by hand": lambda: tuple(draw(st.lists(single_passes(), min_size=1, max_size=3))),
    }
    return lists[draw(st.sampled_from(sorted(lists)))]()
