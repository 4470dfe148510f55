"""Recurrence: linear attention, state-space models, short convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtally.core.errors import InputError, require_int
from kvtally.core.passes import Pass
from kvtally.core.tally import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """A layer whose memory does not grow: linear attention, a state-space model, a short convolution.

    `matrices` are all dense matrices a token goes through, (term, inputs, outputs) with None for the
    hidden size; a block-diagonal one is given by all its inputs and the outputs of one block.
    `conv_channels` channels pass a causal convolution of `conv_kernel` taps, each filter over
    `conv_group` channels; `conv_dynamic`: its taps are made for each token, so that its products are
    reads of a state (state_read), not a convolution. The state is `num_heads` matrices of `key_dim` x
    `value_dim` (`num_heads` 0: no state): one MAC an element to write a token in, one to read it out;
    the `delta` rule first reads what it is about to overwrite, one MAC more. `shifted` elements of the
    last token are kept as they are (a token shift), `scanned` elements are updated one by one: both are
    held, and multiply no matrices. Decays, gates and scans are element-wise and not counted.

    >>> gdn = Recurrent(matrices=((Term.in_proj, None, 40), (Term.out_proj, 8, None)), delta=True,
    ...                 conv_channels=16, conv_kernel=4, num_heads=2, key_dim=4, value_dim=4)
    >>> gdn.projections(10)[Term.in_proj], gdn.state  # 10 * 40; 3 * 16 + 2 * 4 * 4
    (400, 80)
    >>> gdn.projections(10)[Term.state_update], gdn.projections(10)[Term.state_read]  # 2 * 32; 32
    (64, 32)
    """

    matrices: tuple[tuple[Term, int | None, int | None], ...] = ()
    conv_channels: int = 0
    conv_kernel: int = 1
    conv_group: int = 1
    conv_dynamic: bool = False
    num_heads: int = 0
    key_dim: int = 1
    value_dim: int = 1
    delta: bool = False
    shifted: int = 0
    scanned: int = 0

    def __post_init__(self) -> None:
        for name in ("conv_channels", "num_heads", "shifted", "scanned"):
            require_int(name, getattr(self, name), least=0)
        for name in ("conv_kernel", "conv_group", "key_dim", "value_dim"):
            require_int(name, getattr(self, name), least=1)
        if self.conv_channels % self.conv_group:
            raise InputError(
                f"`conv_channels` is {self.conv_channels} and `conv_group` is {self.conv_group}, expected a whole "
                "number of groups"
            )
        for index, (term, *sizes) in enumerate(self.matrices):
            if term not in tuple(Term):
                raise InputError(f"`matrices[{index}]` is for {term!r}; known: " + ", ".join(f"`{t}`" for t in Term))
            for size in sizes:
                require_int(f"matrices[{index}]", 1 if size is None else size, least=1)

    @property
    def matrix_state(self) -> int:
        """Elements of the matrices that tokens are written into and read from."""
        return self.num_heads * self.key_dim * self.value_dim

    @property
    def recurrent_state(self) -> int:
        return self.matrix_state + self.scanned

    def projections(self, hidden_size: int) -> dict[Term, int]:
        terms: dict[Term, int] = {}
        for term, inputs, outputs in self.matrices:
            macs = (hidden_size if inputs is None else inputs) * (hidden_size if outputs is None else outputs)
            terms[term] = terms.get(term, 0) + macs
        convolved = self.conv_channels * self.conv_kernel * self.conv_group
        made = {
            Term.conv1d: 0 if self.conv_dynamic else convolved,
            Term.state_update: self.matrix_state * (2 if self.delta else 1),
            Term.state_read: self.matrix_state + (convolved if self.conv_dynamic else 0),
        }
        return terms | {term: macs for term, macs in made.items() if macs}

    def expansions(self, hidden_size: int) -> dict[Term, int]:
        return {}

    def expanded(self, p: Pass) -> int:
        return 0

    @property
    def pair_cost(self) -> dict[Term, int]:
        return {}

    def pairs(self, p: Pass, kernel: str, rows: int | None = None) -> int:
        return 0

    @property
    def kv_per_token(self) -> tuple[int, int]:
        return 0, 0

    def tokens_held(self, context: int) -> int:
        return 0

    def written(self, p: Pass) -> int:
        return 0

    def read(self, p: Pass) -> int:
        return 0

    @property
    def state(self) -> int:
        return (self.conv_kernel - 1) * self.conv_channels + self.shifted + self.recurrent_state

    def shrunk(self) -> Recurrent:
        group = min(self.conv_group, 2)
        return replace(
            self,
            matrices=tuple((t, i and min(i, 6), o and min(o, 9)) for t, i, o in self.matrices),
            conv_channels=min(self.conv_channels, 6) // group * group,
            conv_group=group,
            num_heads=min(self.num_heads, 2),
            key_dim=min(self.key_dim, 3),
            value_dim=min(self.value_dim, 2),
            shifted=min(self.shifted, 4),
            scanned=min(self.scanned, 5),
        )
