"""Tuples in place of lists, and a dataclass that keeps them."""

# ruff: noqa
from dataclasses import dataclass


@dataclass
class Kept:
    K: tuple = ()
    V: tuple = ()


def project(x, W):
    return tuple(tuple(dot(row, x) for row in M) for M in W)


def run_with_cache(xs, W, store=lambda number: number):
    kept, outputs = Kept(), ()
    for x in xs:
        q, k, v = project(x, W)
        kept = Kept((*kept.K, tuple(map(store, k))), (*kept.V, tuple(map(store, v))))
        outputs = (*outputs, tuple(attend(q, kept.K, kept.V)))
    return outputs
