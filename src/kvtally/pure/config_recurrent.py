"""The parts of recurrent and hybrid decoders: kinds of layers, state-space mixers, delta nets, convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from kvtally.core.errors import InputError
from kvtally.core.mlp import Experts, Mlp
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.core.tally import Term
from kvtally.pure.config_dense import FULL, depth, expect_same, per_layer, routing
from kvtally.pure.config_fields import Fields

LINEAR, CONV, HYBRID = "linear_attention", "conv", "hybrid"
OLD_KINDS = {"mamba": LINEAR, "attention": FULL}  # as files spelled them before transformers 5
SCAN = "how a scan is cut into chunks or fused, not what it computes"


def kinds(
    f: Fields, known: tuple[str, ...], *, name: str = "layer_types", old: Mapping[str, str] = OLD_KINDS
) -> tuple[str, ...] | None:
    """The kind of each layer as the config lists them, old spellings made new, or None where it does not."""
    words = per_layer(f, name, (*known, *(word for word, new in old.items() if new in known)))
    return None if words is None else tuple(old.get(word, word) for word in words)


def ruled_kinds(
    f: Fields, known: tuple[str, ...], rule: tuple[str, ...], source: str, *further: str
) -> tuple[str, ...]:
    """The kinds, all of them `known`, that the config lists; where it lists none, those of `rule`.

    The rule follows from the field `source` and `further` ones, which a list makes superfluous.
    """
    listed = kinds(f, known)
    if listed is not None:
        f.set_aside(source, *further, note="layer_types lists the layers")
        return listed
    f.derive("layer_types", ", ".join(dict.fromkeys(rule)), source)
    return rule


def every(
    f: Fields, period: str, default: int, *, full: str = FULL, old: Mapping[str, str] = OLD_KINDS
) -> tuple[str, ...]:
    """Every n-th layer attends, the others are recurrent, unless the config lists them; n is the field `period`."""
    step = f.integer(period, default=default)
    rule = tuple(full if (index + 1) % step == 0 else LINEAR for index in range(depth(f)))
    listed = kinds(f, (LINEAR, full), old=old)
    if listed is None:
        f.derive("layer_types", f"{full} every {step}, else {LINEAR}", f.facts[period].source)
        return rule
    if f.has(period):
        expect_same("layer_types", listed, rule, f.said(period))
    return listed


def mamba1(*, inner: int, state: int, rank: int, kernel: int) -> Recurrent:
    """A Mamba mixer (arXiv:2312.00752): a state of `state` elements for each of `inner` channels."""
    matrices = (
        (Term.in_proj, None, 2 * inner),
        (Term.x_proj, inner, rank + 2 * state),
        (Term.dt_proj, rank, inner),
        (Term.out_proj, inner, None),
    )
    return Recurrent(
        matrices=matrices, conv_channels=inner, conv_kernel=kernel, num_heads=inner, key_dim=state, value_dim=1
    )


def mamba2(*, heads: int, head_dim: int, groups: int, state: int, kernel: int) -> Recurrent:
    """A Mamba-2 mixer (arXiv:2405.21060): the convolution runs over x, and B and C of each group."""
    if heads % groups:
        raise InputError(f"{heads:,} heads in {groups:,} groups of B and C, expected a whole number of heads a group")
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    return Recurrent(
        matrices=((Term.in_proj, None, inner + channels + heads), (Term.out_proj, inner, None)),
        conv_channels=channels,
        conv_kernel=kernel,
        num_heads=heads,
        key_dim=state,
        value_dim=head_dim,
    )


def mamba2_of(f: Fields, inner: int) -> Recurrent:
    """The Mamba-2 mixer of a hybrid that spells its fields `mamba_...`: `inner` channels in all."""
    heads = f.integer("mamba_n_heads")
    head_dim = f.integer_or("auto", "mamba_d_head")
    if inner % heads or (head_dim is not None and head_dim * heads != inner):
        both = f"{f.said('mamba_n_heads')} and {f.said('mamba_d_head')}"
        raise InputError(f"{both}, expected {inner:,} channels in all")
    f.set_aside(*SCAN_FIELDS, note=SCAN)
    f.set_aside("mamba_conv_bias", "mamba_proj_bias", "mamba_rms_norm", "mamba_norm_before_gate", note="no product")
    return mamba2(
        heads=heads,
        head_dim=inner // heads,
        groups=f.integer("mamba_n_groups"),
        state=f.integer("mamba_d_state"),
        kernel=f.integer("mamba_d_conv"),
    )


SCAN_FIELDS = ("chunk_size", "mamba_chunk_size", "use_mamba_kernels", "use_mambapy", "use_falcon_mambapy")


def gated_delta(f: Fields, *, fused: bool = True) -> Recurrent:
    """A gated delta net (arXiv:2412.06464): q, k, v through one convolution, a matrix a value head.

    `fused`: everything that enters is in_proj; else q, k and v have names of their own.
    """
    heads, value_dim = f.integer("linear_num_value_heads"), f.integer("linear_value_head_dim")
    key_heads, key_dim = f.integer("linear_num_key_heads"), f.integer("linear_key_head_dim")
    if heads % key_heads:
        both = f"{f.said('linear_num_value_heads')} and {f.said('linear_num_key_heads')}"
        raise InputError(f"{both}, expected a whole number of value heads for each key head")
    return delta_net(
        heads=heads,
        key_dim=key_dim,
        value_dim=value_dim,
        keys=key_heads * key_dim,
        kernel=f.integer("linear_conv_kernel_dim"),
        fused=fused,
    )


def delta_net(*, heads: int, key_dim: int, value_dim: int, keys: int, kernel: int, fused: bool) -> Recurrent:
    """A gated delta net: `keys` wide queries and keys, an output gate, and two gates a head."""
    values = heads * value_dim
    if fused:
        entering: tuple[tuple[Term, int | None, int | None], ...] = (
            (Term.in_proj, None, 2 * keys + 2 * values + 2 * heads),
            (Term.out_proj, values, None),
        )
    else:
        entering = (
            (Term.q_proj, None, keys),
            (Term.k_proj, None, keys),
            (Term.v_proj, None, values),
            (Term.extra_proj, None, values + 2 * heads),
            (Term.o_proj, values, None),
        )
    return Recurrent(
        matrices=entering,
        conv_channels=2 * keys + values,
        conv_kernel=kernel,
        num_heads=heads,
        key_dim=key_dim,
        value_dim=value_dim,
        delta=True,
    )


def delta_attention(heads: int, head_dim: int, kernel: int, *gates: tuple[int | None, int]) -> Recurrent:
    """Kimi delta attention (arXiv:2510.26692): a decay for every channel; `gates` are its further matrices."""
    wide = heads * head_dim
    return Recurrent(
        matrices=(
            (Term.q_proj, None, wide),
            (Term.k_proj, None, wide),
            (Term.v_proj, None, wide),
            *((Term.extra_proj, inputs, outputs) for inputs, outputs in gates),
            (Term.o_proj, wide, None),
        ),
        conv_channels=3 * wide,
        conv_kernel=kernel,
        num_heads=heads,
        key_dim=head_dim,
        value_dim=head_dim,
        delta=True,
    )


def short_conv(f: Fields) -> Recurrent:
    """A gated short convolution (LFM2): three times the hidden size in, a convolution over it, and out."""
    hidden = f.integer("hidden_size")
    f.set_aside("conv_bias", note="no product")
    return Recurrent(
        matrices=((Term.in_proj, None, 3 * hidden), (Term.out_proj, None, None)),
        conv_channels=hidden,
        conv_kernel=f.integer("conv_L_cache"),
    )


def further(*matrices: tuple[int | None, int | None]) -> tuple[Recurrent, ...]:
    """For `Layer.beside`: matrices each token goes through besides mixer and MLP, None for the hidden size."""
    return (Recurrent(matrices=tuple((Term.extra_proj, i, o) for i, o in matrices)),) if matrices else ()


def chosen_experts(
    f: Fields, number: str, width: str, *, shared: int = 0, shared_gate: int = 0, gated: bool = True
) -> Experts:
    """Experts of which `num_experts_per_tok` are chosen; their number and width are fields of these names."""
    many, chosen = routing(f, number, "num_experts_per_tok")
    return Experts(
        num_experts=many,
        per_token=chosen,
        width=f.integer(width),
        shared=shared,
        shared_gate=shared_gate,
        gated=gated,
    )


def dense_then_sparse(
    f: Fields, dense: int, of_dense: Mlp, of_sparse: Experts, *, name: str = "mlp_layer_types"
) -> tuple[Mlp | Experts, ...]:
    """Experts after the first `dense` layers, unless the config lists the kind of every MLP."""
    listed = per_layer(f, name, ("dense", "sparse"))
    rule = listed or tuple("dense" if index < dense else "sparse" for index in range(depth(f)))
    f.set_aside(*(("first_k_dense_replace", "dense_mlp_idx") if listed else ()), note="mlp_layer_types lists them")
    f.set_aside(*(() if "dense" in rule else ("intermediate_size",)), note="no layer has a dense MLP")
    return tuple(of_dense if kind == "dense" else of_sparse for kind in rule)
