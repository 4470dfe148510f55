"""A decoder of equal layers by its sizes: the knobs of the page and of the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.mlp import Mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Layers all alike, with plain attention and a dense MLP; the defaults are the lesson's.

    `window` 0 means none, `mlp` 0 no MLP, `vocab` 0 no output head; `o_proj` is the output projection.

    >>> Sizes(heads=4, kv_heads=2, head_dim=8, layers=3).decoder().held(10)  # 3 * 10 * 2 * 2*8
    960
    """

    layers: int = 1
    hidden: int = 64
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 64
    mlp: int = 0
    gated: bool = True
    o_proj: bool = False
    vocab: int = 0
    window: int = 0

    def decoder(self, name: str = "by its sizes") -> Decoder:
        """The decoder of these sizes."""
        mixer = Attention(
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            window=self.window or None,
            output=self.o_proj,
        )
        layer = Layer(mixer=mixer, mlp=Mlp(width=self.mlp, gated=self.gated) if self.mlp else None)
        return Decoder(hidden_size=self.hidden, vocab_size=self.vocab, layers=(layer,) * self.layers, name=name)


def sizes_of(decoder: Decoder) -> Sizes:
    """The sizes that make exactly this decoder; an InputError where none do.

    >>> from kvtally.core.decoder import lesson
    >>> sizes_of(lesson()) == Sizes()
    True
    """
    first = asdict(replace(decoder, layers=decoder.layers[:1]))["layers"][0]
    mixer, mlp = first["mixer"] or {}, first["mlp"] or {}
    found = Sizes(
        layers=len(decoder.layers),
        hidden=decoder.hidden_size,
        heads=mixer.get("num_heads", 1),
        kv_heads=mixer.get("num_kv_heads", 1),
        head_dim=mixer.get("head_dim", 1),
        mlp=mlp.get("width", 0),
        gated=mlp.get("gated", True),
        o_proj=mixer.get("output", False),
        vocab=decoder.vocab_size,
        window=mixer.get("window") or 0,
    )
    if found.decoder() != decoder:
        raise InputError(
            f"`{decoder.name:.60}` has layers of several kinds, experts or another attention, "
            "expected layers all alike with plain attention and a dense MLP",
            hint="count it in the terminal: kvtally count MODEL",
        )
    return found
