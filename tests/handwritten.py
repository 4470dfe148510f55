"""A decoder written by hand in PyTorch, not of transformers, and how it is called; healthy, or with a planted fault."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from kvtally import Attention, Decoder, Layer, Mlp, Pass
from kvtally.live import Convention
from kvtally.live.harness import token_ids

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, VOCAB = 14, 6, 2, 5, 22, 31

DECODER = Decoder(
    hidden_size=HIDDEN,
    vocab_size=VOCAB,
    layers=(
        Layer(
            mixer=Attention(num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM),
            mlp=Mlp(width=WIDTH, gated=False),
        ),
    )
    * 2,
)


class Cache:
    """Keys and values of each layer; and, for the sick decoder, the hidden states they were made from."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.hidden: dict[int, Tensor] = {}

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        if layer in self.kept:
            keys, values = (torch.cat([old, new], 2) for old, new in zip(self.kept[layer], (keys, values), strict=True))
        self.kept[layer] = keys, values
        return keys, values


class SelfAttention(nn.Module):
    """Grouped-query attention; `again` projects K and V of the whole context anew in each pass (the fault)."""

    def __init__(self, layer: int, again: bool) -> None:
        super().__init__()
        self.layer, self.again = layer, again
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        new, source = x.shape[1], x
        if self.again and cache is not None:
            before = cache.hidden.get(self.layer)
            source = cache.hidden[self.layer] = x if before is None else torch.cat([before, x], 1)
        q, k, v = (self.heads(p(s)) for p, s in ((self.q_proj, x), (self.k_proj, source), (self.v_proj, source)))
        if cache is not None:
            k, v = cache.update(k[:, :, -new:], v[:, :, -new:], self.layer)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        future = torch.ones(new, k.shape[2], dtype=torch.bool).triu(1 + k.shape[2] - new)
        scores = (q @ k.mT / math.sqrt(HEAD_DIM)).masked_fill(future, -torch.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    @staticmethod
    def heads(x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, HEAD_DIM)).transpose(1, 2)


class Block(nn.Module):
    """Attention, then an MLP; `extra` is a module whose name no table knows."""

    def __init__(self, layer: int, again: bool, extra: nn.Module | None) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attn = SelfAttention(layer, again)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(HIDDEN, WIDTH), "c_proj": nn.Linear(WIDTH, HIDDEN)})
        self.extra = extra

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        x = x + self.mlp["c_proj"](torch.relu(self.mlp["c_fc"](self.ln_2(x))))
        return x if self.extra is None else x + self.extra(x)


class Net(nn.Module):
    """Two blocks between an embedding and an output head."""

    def __init__(self, *, again: bool = False, extra: nn.Module | None = None) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, HIDDEN)
        self.blocks = nn.ModuleList([Block(0, again, extra), Block(1, again, None)])
        self.lm_head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids: Tensor, cache: Cache | None, rows: int) -> Tensor:
        x = self.wte(ids)
        for block in self.blocks:
            x = block(x, cache)
        return self.lm_head(x[:, x.shape[1] - rows :])


def calls(net: Net) -> Convention:
    """How `net` is called."""

    def call(cache: Any, ids: Tensor, p: Pass) -> Tensor:
        return net(ids, cache, p.logits)

    return Convention(fresh=Cache, call=call, ids=token_ids(VOCAB))
