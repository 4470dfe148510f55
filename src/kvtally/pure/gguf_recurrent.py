"""GGUF architectures with recurrent layers: Mamba, delta nets, short convolutions, and hybrids of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvtally.core.decoder import Decoder
from kvtally.core.errors import InputError
from kvtally.core.mixer import Mixer
from kvtally.core.mlp import Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_fields import HINT
from kvtally.pure.config_recurrent import delta_attention, delta_net, mamba1
from kvtally.pure.config_recurrent import mamba2 as mamba2_of
from kvtally.pure.gguf_keys import Keys
from kvtally.pure.gguf_latent import latent_attention
from kvtally.pure.gguf_parts import (
    KV_HEADS,
    ROUTER,
    WIDTH,
    attentions,
    by_kind,
    depth,
    everywhere,
    experts,
    having,
    mlps,
    nowhere,
    stack,
)


def mamba(k: Keys) -> Decoder:
    """Mamba: recurrent layers alone."""
    return stack(k, (_mamba1(k),) * depth(k), (None,) * depth(k))


def mamba2(k: Keys) -> Decoder:
    """Mamba-2: recurrent layers alone."""
    return stack(k, (_mamba2(k),) * depth(k), (None,) * depth(k))


def jamba(k: Keys) -> Decoder:
    """Jamba: Mamba where `head_count_kv` is 0; which layers have experts only the names of the tensors say."""
    many = k.integer("expert_count", default=0)
    sparse = having(k, ROUTER, "which layers have experts") if many else (False,) * depth(k)
    return stack(k, _hybrid(k, _mamba1(k)), by_kind(k, sparse))


def hybrid(k: Keys) -> Decoder:
    """Granite 4: Mamba-2 where `head_count_kv` is 0, attention elsewhere; an MLP or experts in every layer."""
    return stack(k, _hybrid(k, _mamba2(k)), mlps(k))


def lfm2(k: Keys) -> Decoder:
    """LFM2: a gated short convolution where `head_count_kv` is 0, attention elsewhere."""
    hidden = k.integer("embedding_length", least=1)
    conv = Recurrent(
        matrices=((Term.in_proj, None, 3 * hidden), (Term.out_proj, None, None)),
        conv_channels=hidden,
        conv_kernel=k.integer("shortconv.l_cache", least=1),
    )
    return stack(k, _hybrid(k, conv), mlps(k))


def nemotron_h(k: Keys) -> Decoder:
    """Nemotron-H: attention where `head_count_kv` is not 0, an MLP where `feed_forward_length` is not, else Mamba-2."""
    widths = k.by_layer(WIDTH, depth(k))
    sparse = experts(k, gated=False) if k.integer("expert_count", default=0) else None
    state, found = _mamba2(k), attentions(k, nowhere(k))
    mixers = [mixer or (None if width else state) for mixer, width in zip(found, widths, strict=True)]
    return stack(k, mixers, [(sparse or Mlp(width=width, gated=False)) if width else None for width in widths])


def falcon_h1(k: Keys) -> Decoder:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    mixers = everywhere(k, attentions(k, nowhere(k)))
    return stack(k, mixers, mlps(k), beside=((_mamba2(k),),) * len(mixers))


def qwen3next(k: Keys) -> Decoder:
    """Qwen3-Next and Qwen3.5: gated delta nets, and gated attention in every fourth layer or as the file says."""
    layers, interval = depth(k), "full_attention_interval"
    every = k.integer(interval, least=1) if k.has(interval) else int(k.derive(interval, 4, k.built_in))
    heads, inner, key = (k.integer(f"ssm.{name}", least=1) for name in ("time_step_rank", "inner_size", "state_size"))
    groups, kernel = (k.integer(f"ssm.{name}", least=1) for name in ("group_count", "conv_kernel"))
    net = delta_net(
        heads=heads,
        key_dim=key,
        value_dim=_whole(k, "ssm.inner_size", inner, "ssm.time_step_rank", heads),
        keys=groups * key,
        kernel=kernel,
        fused=True,
    )
    full = everywhere(k, attentions(k, nowhere(k), gated=True))
    mixers = [full[i] if (i + 1) % every == 0 else net for i in range(layers)]
    return stack(k, mixers, mlps(k, split=True, gate=1))


def kimi_linear(k: Keys) -> Decoder:
    """Kimi-Linear: Kimi delta attention where `head_count_kv` is 0, latent attention elsewhere."""
    latent = latent_attention(k)
    kv = k.by_layer(KV_HEADS, depth(k))  # not set aside: it says which layers attend
    heads, width = latent.num_heads, k.integer("kda.head_dim", least=1)
    wide = heads * width
    gates = ((None, width), (width, wide), (None, heads), (None, width), (width, wide))
    delta = delta_attention(heads, width, k.integer("ssm.conv_kernel", least=1), *gates)
    k.derive("recurrent layers", sum(not n for n in kv), KV_HEADS)
    return stack(k, [latent if n else delta for n in kv], mlps(k))


def _hybrid(k: Keys, recurrent: Recurrent) -> Sequence[Mixer]:
    """Attention where a layer has KV heads, `recurrent` elsewhere; a file that does not say is refused."""
    if not k.has(KV_HEADS):
        raise InputError(
            f"`{k.arch}.{KV_HEADS}` is missing, expected a number for each layer: 0 where it is recurrent", hint=HINT
        )
    return [mixer or recurrent for mixer in attentions(k, nowhere(k))]


def _mamba1(k: Keys) -> Recurrent:
    inner, state, rank, kernel = (
        k.integer(f"ssm.{name}", least=1) for name in ("inner_size", "state_size", "time_step_rank", "conv_kernel")
    )
    return mamba1(inner=inner, state=state, rank=rank, kernel=kernel)


def _mamba2(k: Keys) -> Recurrent:
    """A Mamba-2 mixer: `time_step_rank` is the number of its heads."""
    inner, heads = k.integer("ssm.inner_size", least=1), k.integer("ssm.time_step_rank", least=1)
    groups, state, kernel = (k.integer(f"ssm.{n}", least=1) for n in ("group_count", "state_size", "conv_kernel"))
    width = _whole(k, "ssm.inner_size", inner, "ssm.time_step_rank", heads)
    return mamba2_of(heads=heads, head_dim=width, groups=groups, state=state, kernel=kernel)


def _whole(k: Keys, wide: str, inner: int, count: str, heads: int) -> int:
    if inner % heads:
        raise InputError(
            f"`{k.arch}.{wide}` is {inner:,} and `{k.arch}.{count}` {heads:,}, expected a whole width for each head"
        )
    return inner // heads


READERS: dict[str, Callable[[Keys], Decoder]] = {
    "mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
    "granitehybrid": hybrid,
    **dict.fromkeys(("lfm2", "lfm2moe"), lfm2),
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), nemotron_h),
    "falcon-h1": falcon_h1,
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), qwen3next),
    "kimi-linear": kimi_linear,
}
