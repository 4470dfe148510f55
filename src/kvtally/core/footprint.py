"""How big: held and reserved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from kvtally.core.errors import require_int, require_one_of

PARTS = ("k", "v", "latent", "index", "conv", "state", "cross", "padding")  # padding: reserved only

Place = tuple[int | None, str]  # layer (None: outside the layers), and part


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the cache of `batch` sequences of `tokens` tokens takes on one device, in exact bytes.

    `held[layer, part]` is what attention needs. `reserved[layer, part]` is what `engine` allocates for it
    (whole pages, full windows, a static length); empty where no engine is named. `conventions` are all
    choices that the numbers depend on, by name. Places of 0 bytes are not stored.

    >>> f = Footprint(tokens=10, batch=1, held={(0, "k"): 640, (0, "v"): 640})
    >>> f.bytes_held, f.bytes_reserved, f.by("part")
    (1280, 0, {'k': 640, 'v': 640})
    """

    tokens: int
    batch: int
    held: Mapping[Place, int]
    reserved: Mapping[Place, int] = field(default_factory=dict)
    engine: str = ""
    conventions: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_int("tokens", self.tokens, least=0)
        require_int("batch", self.batch, least=1)
        for name in ("held", "reserved"):
            table = getattr(self, name)
            for (layer, part), value in table.items():
                if value.__class__ is not int or value < 0 or part not in PARTS:
                    require_int(f"{name}[{layer}, {part}]", value, least=0)
                    require_one_of("part", part, PARTS)
            object.__setattr__(self, name, {place: n for place, n in table.items() if n})

    @property
    def bytes_held(self) -> int:
        """All bytes that attention needs."""
        return sum(self.held.values())

    @property
    def bytes_reserved(self) -> int:
        """All bytes that the engine allocates."""
        return sum(self.reserved.values())

    def by(self, axis: str, *, reserved: bool = False) -> dict[Any, int]:
        """Bytes held (or reserved) summed by `"layer"` or `"part"`."""
        require_one_of("by", axis, ("layer", "part"))
        sums: Counter[Any] = Counter()
        for place, n in (self.reserved if reserved else self.held).items():
            sums[place[("layer", "part").index(axis)]] += n
        return dict(sums)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it: exact integers, every convention a field."""
        return {
            "tokens": self.tokens,
            "batch": self.batch,
            "engine": self.engine,
            "bytes_held": self.bytes_held,
            "bytes_reserved": self.bytes_reserved if self.engine else None,
            "held": [{"layer": i, "part": p, "bytes": n} for (i, p), n in self.held.items()],
            "reserved": [{"layer": i, "part": p, "bytes": n} for (i, p), n in self.reserved.items()],
            "conventions": dict(self.conventions),
        }

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {n:,}" for part, n in self.by("part").items())
        lines = [
            f"{self.batch:,} x {self.tokens:,} tokens",
            f"held {self.bytes_held:,} B" + (f": {parts}" if parts else ""),
        ]
        if self.engine:
            lines.append(f"reserved by {self.engine} {self.bytes_reserved:,} B")
        return "\n".join([*lines, *(f"{name}: {value}" for name, value in self.conventions.items())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        held, reserved = self.by("part"), self.by("part", reserved=True)
        body = "".join(
            f"<tr><th>{part}</th><td>{held.get(part, 0):,}</td><td>{reserved.get(part, 0):,}</td></tr>"
            for part in PARTS
            if part in held or part in reserved
        )
        caption = f"{self.batch:,} x {self.tokens:,} tokens, bytes" + (f", {self.engine}" if self.engine else "")
        head = "<tr><th>part</th><th>held</th><th>reserved</th></tr>"
        return f"<table><caption>{escape(caption)}</caption>{head}{body}</table>"
