"""What a cache of lower precision does to the output, and where its error comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from html import escape
from typing import Any

from kvtally.core.agreement import Agreement, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What one layer keeps of one part (`k`, `v`, `cross k`, `cross v`, `state`), against what it was given.

    `error` is the root of sum (kept - given)^2 / sum given^2, over everything written; `heads` the same by head.
    """

    layer: int
    part: str
    error: float
    heads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel of K that is far larger than the others of its head.

    `times`: its root mean square over that of the median channel. `error` is its share of the squared error of K
    in this head, from 0 to 1.
    """

    layer: int
    head: int
    channel: int
    times: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The error of K and of V, as in `Stored`, over all layers, of the tokens from `start` on; and the largest
    difference of a logit there."""

    start: int
    k: float
    v: float
    max_abs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """The output with K and V rounded as they are written, against the output with an exact cache.

    `agreement` is the verdict and each position: `same`, `rounding` where the error stays within the tolerance that
    `check` has in float32, else `LOSSY`. `mean_abs` is the mean |difference| of a logit. `kl_mean`, `kl_95`
    and `kl_99_9` are the Kullback-Leibler divergence from the exact distribution of the next token, in nats, its mean
    over positions and two percentiles. `top1` is the share of positions whose likeliest token is the same. The
    perplexities are of the text itself. `stored` are the errors of what is kept, `channels` the largest
    outliers of K, `stretches` the errors by position. `bytes_exact` and `bytes_kept` are what the cache of this
    text takes at 16 bits and as kept, scales included; None where the config is not read.

    >>> a = Agreement(scenario="int8", group="steps", verdict="LOSSY", error=0.5, scale=2.0, precision="float32")
    >>> r = Rounded(name="tiny", k="int8", v="int8", agreement=a, bytes_exact=512, bytes_kept=288, tokens=2)
    >>> r.within, r.bytes_a_token, r.times  # 512 / 288
    (False, Fraction(144, 1), Fraction(16, 9))
    """

    name: str
    k: str
    v: str
    agreement: Agreement
    tokens: int
    mean_abs: float = 0.0
    kl_mean: float = 0.0
    kl_95: float = 0.0
    kl_99_9: float = 0.0
    top1: float = 1.0
    perplexity_exact: float = 0.0
    perplexity: float = 0.0
    stored: tuple[Stored, ...] = ()
    channels: tuple[Channel, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    bytes_exact: int | None = None
    bytes_kept: int | None = None
    conventions: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def within(self) -> bool:
        """Whether the output stays within the tolerance of `check`."""
        return self.agreement.verdict in ("same", "rounding")

    @property
    def max_abs(self) -> float:
        """The largest |difference| of a logit."""
        return max((s.max_abs for s in self.agreement.steps), default=0.0)

    @property
    def changed(self) -> Step | None:
        """The first position whose likeliest token changes; None where none does."""
        return next((s for s in self.agreement.steps if s.token_left != s.token_right), None)

    @property
    def bytes_a_token(self) -> Fraction | None:
        """Bytes of the cache of this text, as kept, by its tokens."""
        return None if self.bytes_kept is None else Fraction(self.bytes_kept, self.tokens)

    @property
    def times(self) -> Fraction | None:
        """How many such caches fit where one of 16 bits does: requests, or tokens of context without a window."""
        if self.bytes_kept is None or self.bytes_exact is None or not self.bytes_kept:
            return None
        return Fraction(self.bytes_exact, self.bytes_kept)

    def part(self, part: str) -> float | None:
        """The error of a part over all layers, the root mean square of theirs; None where none was rounded."""
        found = [s.error for s in self.stored if s.part == part]
        return (sum(e * e for e in found) / len(found)) ** 0.5 if found else None

    def worst(self, part: str, many: int = 3) -> tuple[Stored, ...]:
        """The layers with the largest errors of a part, the worst first."""
        return tuple(sorted((s for s in self.stored if s.part == part), key=lambda s: -s.error)[:many])

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it: exact integers, fractions as pairs, every convention a field."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("agreement", "conventions")}
        rows = {name: [asdict(row) for row in fields[name]] for name in ("stored", "channels", "stretches")}
        pairs = {name: getattr(self, name) for name in ("bytes_a_token", "times")}
        return {
            **fields,
            **rows,
            **{name: value and [value.numerator, value.denominator] for name, value in pairs.items()},
            "within": self.within,
            "max_abs": self.max_abs,
            "changed": self.changed and asdict(self.changed),
            "agreement": self.agreement.to_dict(),
            "conventions": dict(self.conventions),
        }

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Each figure with its name, as text."""
        changed, times = self.changed, self.times
        share = f" of {self.agreement.scale:.4g}, {self.agreement.error:.2g} of it" if self.agreement.scale else ""
        worst = {part: ", ".join(f"{s.layer} ({s.error:.2g})" for s in self.worst(part)) for part in ("k", "v")}
        rows = [
            ("within the tolerance of check", "yes" if self.within else "no"),
            ("largest |logit difference|", f"{self.max_abs:.3g}{share}"),
            ("mean |logit difference|", f"{self.mean_abs:.3g}"),
            (
                "KL to the exact output",
                f"mean {self.kl_mean:.3g}, 95 % {self.kl_95:.3g}, 99.9 % {self.kl_99_9:.3g} nats",
            ),
            ("same likeliest token", f"{100 * self.top1:.1f} %"),
            ("first to change", f"position {changed.position}, margin {changed.margin:.2g}" if changed else "none"),
            ("perplexity", f"{self.perplexity_exact:.4f} exact, {self.perplexity:.4f} rounded"),
            *((f"worst layers, {part.upper()}", said) for part, said in worst.items() if said),
            ("bytes a token", "" if self.bytes_a_token is None else f"{float(self.bytes_a_token):,.4g}"),
            ("requests in the memory of 16 bits", "" if times is None else f"{float(times):.4g} times ({times})"),
        ]
        return tuple((name, said) for name, said in rows if said)

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        return "\n".join([self.title, *(f"  {name:<{width}}  {said}" for name, said in self.facts)])

    __repr__ = __str__

    @property
    def title(self) -> str:
        """What was rounded, in one line."""
        return f"{self.name}: K {self.k}, V {self.v}, {self.tokens:,} tokens"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>" for name, said in self.facts)
        return f"<table><caption>{escape(self.title)}</caption>{rows}</table>"
