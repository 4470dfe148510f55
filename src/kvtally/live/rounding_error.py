"""The error of what a rounding cache keeps, summed up as it is written: by layer, head, channel and position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from kvtally.core.rounded import Channel, Stored

OUTLIER = 5.0  # times the root mean square of the median channel of a head
NAMED = 8  # outliers that are told

Place = tuple[str, int]  # part, layer


@dataclass(slots=True, eq=False)
class Errors:
    """Sums of squares, of what was given and of what was lost, in float64: all that is kept of K and V."""

    given: dict[Place, Any] = field(default_factory=dict)  # (heads, width)
    lost: dict[Place, Any] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)  # part: (2, tokens), given and lost

    def watch(self, part: str, layer: int, start: int, given: Any, kept: Any) -> None:
        """Adds what one call wrote, (batch, heads, tokens, width)."""
        x = given.detach().double()
        both = torch.stack([x.square(), (kept.detach().double() - x).square()])
        place = part, layer
        for sums, squares in zip((self.given, self.lost), both, strict=True):
            by_channel = squares.flatten(0, -4).sum((0, -2)) if squares.dim() > 3 else squares.sum(-2)
            sums[place] = sums[place] + by_channel if place in sums else by_channel
        if part in ("k", "v"):
            self._add(part, start, both.transpose(-1, -2).flatten(1, -2).sum(1))

    def _add(self, part: str, start: int, by_token: Any) -> None:
        """Adds sums (2, tokens) at the positions from `start` on."""
        end = start + by_token.shape[1]
        held = self.positions.get(part, by_token.new_zeros(2, 0))
        if end > held.shape[1]:
            held = torch.cat([held, held.new_zeros(2, end - held.shape[1])], 1)
        held[:, start:end] += by_token
        self.positions[part] = held

    def stored(self) -> tuple[Stored, ...]:
        """The relative error of each layer and part."""
        places = sorted(self.given, key=lambda place: (place[0], place[1]))
        return tuple(
            Stored(
                layer=layer,
                part=part,
                error=float(_root(self.lost[part, layer].sum(), self.given[part, layer].sum())),
                heads=tuple(_root(self.lost[part, layer].sum(-1), self.given[part, layer].sum(-1)).flatten().tolist()),
            )
            for part, layer in places
        )

    def channels(self) -> tuple[int, tuple[Channel, ...]]:
        """How many channels of K are outliers, and the largest of them, the largest first."""
        found = []
        for (part, layer), squares in self.given.items():
            if part == "k":
                size = squares.sqrt()
                times = size / size.median(-1, keepdim=True).values.clamp(min=torch.finfo(torch.float64).tiny)
                share = self.lost[part, layer] / self.lost[part, layer].sum(-1, keepdim=True).clamp(min=1e-300)
                found += [
                    Channel(layer=layer, head=h, channel=c, times=float(times[h, c]), error=float(share[h, c]))
                    for h, c in (times > OUTLIER).nonzero().tolist()
                ]
        return len(found), tuple(sorted(found, key=lambda c: -c.times)[:NAMED])

    def between(self, part: str, start: int, end: int) -> float:
        """The relative error of a part at the positions from `start` to before `end`; 0 where none was rounded."""
        held = self.positions.get(part)
        if held is None:
            return 0.0
        given, lost = held[:, start:end].sum(1)
        return float(_root(lost, given))


def _root(lost: Any, given: Any) -> Any:
    """The root of lost / given, 0 where nothing was given."""
    return torch.where(given > 0, lost / given.clamp(min=1e-300), torch.zeros_like(given)).sqrt()
