"""Rounding schemes: each against a reference of someone else, bit for bit, and its bytes against `size`."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import ml_dtypes
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st
from optimum.quanto import MaxOptimizer, qint2, qint4, quantize_weight
from optimum.quanto.tensor.packed import PackedTensor
from transformers.cache_utils import QuantoQuantizedLayer

from kvtally import Attention, Decoder, Layer, Mlp
from kvtally.core.dtype import DTYPES, dtype
from kvtally.core.errors import InputError
from kvtally.live.schemes import AXES, GROUPED, GROUPS, SCHEMES, Scheme, rounded, scheme, storage, stored_bytes
from kvtally.pure.size import size
from rows_to_round import Rows, hard, random

GGML = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
F32 = np.float32


def ours(name: str, rows: Rows, **choice: object) -> Rows:
    found = rounded(scheme(name, **choice), torch.from_numpy(rows.copy()))
    assert (found.dtype, found.shape) == (torch.float32, rows.shape)
    return found.contiguous().numpy()


def assert_same_bits(found: Rows, expected: Rows) -> None:
    """Bit for bit, the sign of zeros included; every NaN is one NaN."""
    expected = expected.astype(F32)
    alike = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
    assert alike.all(), (found[~alike][:5], expected[~alike][:5])


CAST: dict[str, tuple[type, float]] = {
    "bf16": (ml_dtypes.bfloat16, np.inf),
    "fp16": (np.float16, np.inf),
    "fp8_e4m3": (ml_dtypes.float8_e4m3fn, 448.0),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, 57344.0),
}


def cast(name: str, rows: Rows) -> Rows:
    kind, most = CAST[name]
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.clip(-most, most).astype(kind).astype(F32)


@pytest.mark.parametrize("name", CAST)
def test_a_cast_is_that_of_ml_dtypes_with_ties_denormals_infinities_and_nan(name: str) -> None:
    every_half = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(F32)  # all ties of 8 bits are among them
    halfway = every_half.view(np.uint32) ^ np.uint32(0x1000)  # and between two neighbours in fp16
    every_bf16 = (np.arange(2**16, dtype=np.uint32) << 16 | 0x8000).view(F32)  # between two neighbours in bf16
    for rows in (every_half, halfway.view(F32), every_bf16, every_bf16.view(np.uint32).__xor__(0x8000).view(F32)):
        assert_same_bits(ours(name, rows.reshape(256, 256)), cast(name, rows.reshape(256, 256)))


@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_a_cast_is_that_of_ml_dtypes_and_of_pytorch_on_any_float(values: list[float]) -> None:
    rows = np.array([values], dtype=F32)
    for name in CAST:
        assert_same_bits(ours(name, rows), cast(name, rows))
    assert_same_bits(ours("fp32", rows), rows)
    bare = torch.from_numpy(rows)
    assert_same_bits(ours("bf16", rows), bare.to(torch.bfloat16).float().numpy())
    assert_same_bits(ours("fp16", rows), bare.to(torch.float16).float().numpy())


def by_gguf(name: str, rows: Rows) -> Rows:
    kind = GGMLQuantizationType[name.upper()]
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)


@pytest.mark.parametrize("width", [32, 96])
@pytest.mark.parametrize("name", GGML)
def test_a_block_format_is_that_of_the_gguf_package(name: str, width: int) -> None:
    rows = np.concatenate([hard(width), random(3, 300, width)])
    found, expected = ours(name, rows), by_gguf(name, rows)
    np.testing.assert_array_equal(found, expected)
    # below, 1/d is infinite in float32, and what C and numpy make an integer of it is undefined: ±0
    defined = (np.abs(rows).max(-1) > 1e-30) | (rows == 0).all(-1)
    assert_same_bits(found[defined], expected[defined])


@given(st.sampled_from(GGML), st.lists(st.floats(-60000, 60000, width=32), min_size=32, max_size=32))
def test_a_block_format_is_that_of_the_gguf_package_on_any_block(name: str, block: list[float]) -> None:
    rows = np.array([block], dtype=F32)
    np.testing.assert_array_equal(ours(name, rows), by_gguf(name, rows))


def by_quanto(bits: int, rows: Rows) -> Rows:
    """The rows as groups of optimum-quanto, whose scale and shift are brought to fp16, as they are stored."""
    kind, whole = {2: qint2, 4: qint4}[bits], torch.from_numpy(rows)
    scale, shift = (s.half().float() for s in MaxOptimizer()(whole, kind, 0, rows.shape[-1]))
    return quantize_weight(whole, kind, 0, scale, shift, rows.shape[-1]).dequantize().numpy()


@pytest.fixture
def unpacked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """quanto compiles a C++ extension for a minute to unpack bits; this takes them apart in Python."""

    def unpack(packed: PackedTensor) -> torch.Tensor:
        bits, data = packed._bits, packed._data
        return torch.cat([data >> shift & (2**bits - 1) for shift in range(0, 8, bits)])[: packed.shape[0]]

    monkeypatch.setattr(PackedTensor, "unpack", unpack)


@pytest.mark.parametrize("width", [32, 64, 50])
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.usefixtures("unpacked_in_python")
def test_integers_with_a_zero_point_are_those_of_quanto(bits: int, width: int) -> None:
    rows = np.concatenate([hard(width), random(5, 300, width)])
    np.testing.assert_array_equal(ours(f"int{bits}", rows), by_quanto(bits, rows))
    if width in GROUPS:
        wide = np.concatenate([rows, rows[::-1]], axis=1)
        halves = np.concatenate([by_quanto(bits, rows), by_quanto(bits, rows[::-1].copy())], axis=1)
        np.testing.assert_array_equal(ours(f"int{bits}", wide, group=width), halves)
        np.testing.assert_array_equal(ours(f"int{bits}", wide.T.copy(), group=width, axis="channel"), halves.T)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.usefixtures("unpacked_in_python")
def test_groups_are_those_of_the_quantized_cache_of_transformers(bits: int, axis: str) -> None:
    draw, most = np.random.default_rng(bits), 2**bits - 1
    low = draw.integers(-9, 9, (2, 3, 64, 2, 1))
    groups = low + 0.5 * most * draw.random((2, 3, 64, 2, 64))
    groups[..., :1], groups[..., -1:] = low, low + 0.5 * most  # so that scale and zero are exact in fp16
    x = torch.from_numpy(groups.reshape(2, 3, 64, 128).astype(F32))
    x = x.transpose(-1, -2).contiguous() if axis == "channel" else x
    along = 0 if axis == "token" else -1
    layer = QuantoQuantizedLayer(nbits=bits, axis_key=along, axis_value=along, q_group_size=64, residual_length=9)
    layer.update(x, x + 1)
    keys, values = layer.update(x[:, :, :1], x[:, :, :1])
    chosen = scheme(f"int{bits}", group=64, axis=axis)
    assert torch.equal(keys[:, :, :-1], rounded(chosen, x))
    assert torch.equal(values[:, :, :-1], rounded(chosen, x + 1))
    assert not torch.equal(keys[:, :, :-1], x)


def by_level(bits: int, row: Rows) -> list[float]:
    """8, 4 or 2 bits for one row, element by element, each step rounded to float32 as it is stored or kept."""
    low, high = min(row), max(row)
    scale = F32(np.float16(F32(F32(high - low) / F32(2**bits - 1))))
    zero = F32(np.float16(low))
    out = []
    for value in row:
        step = F32(round(float(F32(F32(value - zero) / scale)))) if scale else F32(0)
        out.append(F32(F32(scale * min(max(step, F32(0)), F32(2**bits - 1))) + zero))
    return out


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_integers_with_a_zero_point_are_those_of_a_loop_over_elements(bits: int) -> None:
    rows = np.concatenate([hard(48), random(6, 40, 48)])
    np.testing.assert_array_equal(ours(f"int{bits}", rows), np.array([by_level(bits, row) for row in rows]))


def by_ml_dtypes_nvfp4(rows: Rows) -> Rows:
    blocks = rows.reshape(len(rows), -1, 16)
    most = np.abs(blocks).max(-1, keepdims=True) * F32(1 / 6)
    scale = most.clip(max=448).astype(ml_dtypes.float8_e4m3fn).astype(F32)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, F32(0), F32(1) / scale)
    return ((blocks * inverse).clip(-6, 6).astype(ml_dtypes.float4_e2m1fn).astype(F32) * scale).reshape(rows.shape)


def test_nvfp4_is_that_of_ml_dtypes_formats_and_saturates() -> None:
    rows = np.concatenate([hard(48), random(8, 500, 48), np.arange(-24, 24, dtype=F32)[None] / 4])
    assert_same_bits(ours("nvfp4", rows), by_ml_dtypes_nvfp4(rows))
    assert ours("nvfp4", np.full((1, 16), 1e9, dtype=F32)).max() == 6 * 448
    levels = np.array(
        [[0, 0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -5, -3.5, -0.0, 5.01]], dtype=F32
    )
    assert ours("nvfp4", levels)[0].tolist() == [0, 0, 0.5, 1, 1, 2, 2, 4, 4, 6, -0.0, -1, -4, -4, -0.0, 6]


@pytest.mark.parametrize(("name", "most"), [("int8_per_token_head", 127.0), ("fp8_per_token_head", 448.0)])
def test_a_scale_a_token_and_head_is_that_of_a_loop_over_rows(name: str, most: float) -> None:
    rows = np.concatenate([hard(48), random(9, 300, 48)])
    out = []
    for row in rows:
        scale = max(F32(np.abs(row).max() / F32(most)), F32(1e-6))
        steps = row * F32(F32(1) / scale)
        if name.startswith("int8"):
            out.append(np.rint(steps).clip(-128, 127) * scale)
        else:
            out.append(steps.clip(-most, most).astype(ml_dtypes.float8_e4m3fn).astype(F32) * scale)
    assert_same_bits(ours(name, rows), np.array(out))


@pytest.mark.parametrize("name", SCHEMES)
def test_the_bytes_are_those_of_size_in_every_group_and_axis(name: str) -> None:
    layer = Layer(mixer=Attention(num_heads=6, num_kv_heads=3, head_dim=192), mlp=Mlp(width=8))
    decoder = Decoder(hidden_size=16, vocab_size=20, layers=(layer,) * 2)
    choices = [(g, a) for g in GROUPS for a in AXES if (g, a) != ("head", "channel")]
    for group, axis in choices if name in GROUPED else [(None, "token")]:
        found = scheme(name, group=group, axis=axis)
        kind = f"{name}_g{group}" if isinstance(group, int) else name
        assert storage(found) is dtype(kind)
        assert size(decoder, 128, dtype=kind).bytes_held == 2 * 2 * 3 * stored_bytes(found, 128, 192)


def test_every_type_that_size_knows_can_be_rounded_or_is_refused_by_name() -> None:
    found = {name: scheme(name) for name in DTYPES if name != "int4_per_token_head"}
    assert {f.name for f in found.values()} == set(SCHEMES)
    assert {n for n, f in found.items() if f.name != n} == {"fp8", *(n for n in found if "_g" in n)}
    with pytest.raises(InputError, match="`int4_per_token_head`, which can be sized and not rounded: vLLM rotates"):
        scheme("int4_per_token_head")


def test_the_error_shrinks_with_more_bits_and_smaller_groups() -> None:
    rows = torch.from_numpy(np.random.default_rng(11).standard_normal((64, 128)).astype(F32))

    def error(found: Scheme) -> float:
        return float((rounded(found, rows) - rows).norm())

    fine, middle, coarse = (error(scheme(n)) for n in ("int8", "int4", "int2"))
    assert 0 < fine < middle / 8 < coarse / 16
    for name in GROUPED:
        assert error(scheme(name, group=32)) < error(scheme(name, group=64)) < error(scheme(name, group="head"))


@given(st.sampled_from(SCHEMES), st.integers(0, 10**6))
def test_what_was_read_is_as_near_as_a_level_and_a_row_depends_on_itself_alone(name: str, seed: int) -> None:
    rows = random(seed, 6, 64)
    found = ours(name, rows)
    assert_same_bits(ours(name, rows[2:3]), found[2:3])
    assert np.isfinite(found).all()
    bits, most = DTYPES[name].bits, np.abs(rows).max(-1, keepdims=True)
    if name.startswith(
        ("int", "q")
    ):  # a level, and what fp16 takes off the scale and the zero: 2^-11 of each, or 2^-25
        step = 2 * most / (2 ** min(bits, 7) - 1)
        assert (np.abs(found - rows) <= step + 3 * most * 2**-11 + 2 ** (bits - 24)).all()


def test_a_tensor_of_heads_is_rounded_row_by_row_and_an_empty_one_stays_empty() -> None:
    x = torch.from_numpy(random(12, 30, 64)).reshape(2, 3, 5, 64)
    for name in SCHEMES:
        flat = rounded(scheme(name), x.reshape(30, 64))
        assert torch.equal(rounded(scheme(name), x), flat.reshape(2, 3, 5, 64))
        assert rounded(scheme(name), x[:, :, :0]).shape == (2, 3, 0, 64)
    assert rounded(scheme("int4", group=32, axis="channel"), x[:, :, :0]).shape == (2, 3, 0, 64)
    half = x.to(torch.bfloat16)
    assert torch.equal(rounded(scheme("bf16"), half), half.float())
    assert torch.equal(x, torch.from_numpy(random(12, 30, 64)).reshape(2, 3, 5, 64))  # left as it was


Call = Callable[[], object]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scheme("int3"), "`scheme` is 'int3'; known: "),
        (lambda: scheme("int4", axis="row"), "`axis` is 'row'; known: `channel`, `token`"),
        (lambda: scheme("int4", group=48), "`group` is 48 for the axis 'token'; known: `32`, `64`, `head`"),
        (lambda: scheme("int4", group=True), "`group` is True"),
        (lambda: scheme("int4", axis="channel"), "`group` is None for the axis 'channel'; known: `32`, `64`"),
        (lambda: scheme("int4", group="head", axis="channel"), "`group` is 'head' for the axis 'channel'"),
        (lambda: scheme("int4_g32", group=64), "`group` is 64 and `int4_g32` has groups of 32"),
        (lambda: scheme("q8_0", group=32), "`q8_0` was asked for group 32, and fixes both itself"),
        (lambda: scheme("bf16", axis="channel"), "`bf16` was asked for axis 'channel', and fixes both itself"),
        (lambda: rounded(scheme("q4_0"), torch.ones(2, 80)), "`q4_0` has blocks of 32 elements and a row is 80 wide"),
        (lambda: rounded(scheme("int4", group=32, axis="channel"), torch.ones(40, 64)), "`int4_g32` has blocks of 32"),
        (lambda: stored_bytes(scheme("int4", group=64), 5, 96), "`int4_g64` has blocks of 64 elements"),
        (lambda: rounded(scheme("q8_0"), torch.full((1, 32), torch.inf)), "`q8_0` has NaN or infinite elements"),
        (lambda: rounded(scheme("nvfp4"), torch.full((1, 32), torch.nan)), "`nvfp4` has NaN or infinite elements"),
        (lambda: rounded(scheme("int8"), torch.full((1, 5), 1e6)), "a scale of `int8` is stored as fp16"),
        (lambda: rounded(scheme("q4_1"), torch.full((1, 32), -1e6)), "a scale of `q4_1` is stored as fp16"),
        (lambda: rounded(scheme("bf16"), torch.ones(2, 5, dtype=torch.int64)), "has type torch.int64, expected a"),
    ],
)  # fmt: skip
def test_what_cannot_be_rounded_is_refused_with_what_is_known(call: Call, message: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert message in refused.value.problem


def test_a_scheme_names_the_bytes_it_takes() -> None:
    kinds = [scheme("int4"), scheme("int4", group=64), scheme("int2", group=32, axis="channel"), scheme("float32")]
    assert [str(k) for k in kinds] == ["int4", "int4_g64", "int2_g32 by channel", "fp32"]
