"""Every bound of a number is said, by the name of what was given."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest

from kvtally import Attention, Decoder, Experts, InputError, Layer, edited, lesson
from kvtally.core.errors import UnreadableError, require_int, require_number, require_one_of
from kvtally.core.latent_mixer import LatentAttention
from kvtally.core.mixer import CrossAttention
from kvtally.core.strided_span import StridedSpan
from kvtally.pure.size import fits, longest


@pytest.mark.parametrize("value", [True, "3", None, inf, nan, -inf])
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"`n` is .*, expected a number$"):
        require_number("n", value)


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**20_000], ids=["large", "below 0", "no text"])
def test_an_integer_that_no_float_holds_is_refused(value: int) -> None:
    with pytest.raises(InputError) as error:
        require_number("n", value, least=0)
    bits = f"an integer of {value.bit_length():,} bits"
    assert str(error.value) == f"`n` is {bits}, expected a number of at least 0 that a float holds"
    assert require_number("n", 2**1023, least=0) == 2**1023


@pytest.mark.parametrize(
    ("bounds", "right", "wrong", "said"),
    [
        ({"least": 2}, (2, 2.5, 9), (1.9, -3), "of at least 2"),
        ({"above": 2}, (2.1, 9), (2, 1.9), "above 2"),
        ({"below": 2}, (1.9, -9), (2, 2.1), "below 2"),
        ({"least": 0, "below": 1}, (0, 0.5), (-0.1, 1), "of at least 0 and below 1"),
        ({"above": 0, "below": 1}, (0.5,), (0, 1), "above 0 and below 1"),
    ],
)
def test_a_number_stays_within_its_bounds(
    bounds: dict[str, float], right: tuple[float, ...], wrong: tuple[float, ...], said: str
) -> None:
    for value in right:
        assert require_number("n", value, **bounds) == value
    for value in wrong:
        with pytest.raises(InputError) as error:
            require_number("n", value, **bounds)
        assert str(error.value) == f"`n` is {value:g}, expected a number {said}"


def test_an_integer_stays_within_its_bounds() -> None:
    assert [require_int("n", value, least=2, most=4) for value in (2, 3, 4)] == [2, 3, 4]
    for value in (1, 5, 2.0, True, "2"):
        with pytest.raises(InputError, match=r"`n` is .*, expected an integer of at least 2 and at most 4"):
            require_int("n", value, least=2, most=4)
    with pytest.raises(InputError) as error:
        require_int("n", -1234, least=1000)
    assert str(error.value) == "`n` is -1,234, expected an integer of at least 1,000"


def test_a_word_is_one_of_those_that_are_known() -> None:
    require_one_of("kind", "b", ["b", "a"])
    with pytest.raises(InputError) as error:
        require_one_of("kind", "c", ["b", "a"])
    assert str(error.value) == "`kind` is 'c'; known: `a`, `b`"


def test_places_are_joined_and_the_kind_stays() -> None:
    error = UnreadableError("no such file", hint="check", where="inner").at("outer")
    assert isinstance(error, UnreadableError) and str(error) == "outer: inner: no such file\n\nhint: check"
    assert (error.exit_code, InputError("x").exit_code) == (3, 2)


LATENT = {"kv_lora_rank": 4, "qk_rope_head_dim": 2, "qk_nope_head_dim": 2, "v_head_dim": 2}
NAMED: list[tuple[str, Callable[[], object]]] = [
    ("context", lambda: lesson().held(-1)),
    ("at", lambda: edited(9, 9, 1)),
    ("num_heads", lambda: Attention(num_heads=0, num_kv_heads=1, head_dim=2)),
    ("num_kv_heads", lambda: Attention(num_heads=2, num_kv_heads=0, head_dim=2)),
    ("head_dim", lambda: Attention(num_heads=2, num_kv_heads=1, head_dim=0)),
    ("num_heads", lambda: CrossAttention(num_heads=0, num_kv_heads=1, head_dim=2, source=3)),
    ("source", lambda: CrossAttention(num_heads=1, num_kv_heads=1, head_dim=2, source=-1)),
    ("num_heads", lambda: LatentAttention(num_heads=0, **LATENT)),
    ("q_lora_rank", lambda: LatentAttention(num_heads=1, q_lora_rank=0, **LATENT)),
    ("top_k", lambda: StridedSpan(stride=2, top_k=0)),
    ("memory", lambda: longest(lambda _tokens, _batch: 1, -1)),
    ("memory", lambda: fits(lambda _tokens, _batch: 1, -1, 9)),
    ("shared_gate", lambda: Experts(num_experts=4, per_token=2, width=3, shared=5, shared_gate=-2)),
    ("shared_gate", lambda: Experts(num_experts=4, per_token=2, width=3, shared=5, shared_gate="a")),  # type: ignore[arg-type]
    ("shared_gate` is 2 without", lambda: Experts(num_experts=4, per_token=2, width=3, shared_gate=2)),
    ("outside", lambda: Decoder(hidden_size=2, vocab_size=3, layers=(Layer(),), outside=((0, 2),))),
    ("head", lambda: Decoder(hidden_size=2, vocab_size=3, layers=(Layer(),), head=((2, 0),))),
]


@pytest.mark.parametrize(("name", "call"), NAMED)
def test_a_number_out_of_bounds_is_named(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=f"^`{name}"):
        call()
