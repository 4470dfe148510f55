"""What other rules of a cache would hit at given capacities: policies, and vLLM's own block manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvtally.core.errors import InputError, require_one_of
from kvtally.frontends.options import integers
from kvtally.traffic.policies import POLICIES, policy_hits
from kvtally.traffic.requests import Requests
from kvtally.traffic.vllm import vllm_hits

VLLM, IDEAL = "vllm", "ideal"
MODES = (IDEAL, VLLM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled:
    """A rule, a capacity in blocks, and the block accesses that hit."""

    rule: str
    blocks: int
    hits: int


def asked(policies: str | None, mode: str, capacities: str | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The rules by name, and the capacities in blocks; an InputError where one is unknown or has no capacity.

    >>> asked("fifo,belady", "vllm", "100,1000")
    (('fifo', 'belady', 'vllm'), (100, 1000))
    """
    require_one_of("--mode", mode, MODES)
    rules = () if policies is None else tuple(policies.split(","))
    for rule in rules:
        require_one_of("--policy", rule, POLICIES)
    rules += (VLLM,) if mode == VLLM else ()
    if bool(rules) != (capacities is not None):
        given, other = (
            ("--mode vllm" if policies is None else "--policy", "--capacity") if rules else ("--capacity", "--policy")
        )
        raise InputError(
            f"`{given}` is given without `{other}`", hint="write --policy lru,belady --capacity 1000,10000"
        )
    return rules, () if capacities is None else tuple(integers("capacity", capacities))


def ruled(
    requests: Requests, rules: tuple[str, ...], capacities: tuple[int, ...], told: Callable[[str], object] = str
) -> tuple[Ruled, ...]:
    """The hits of each rule at each capacity; `told` is called with the rule before each."""

    def hits(rule: str, blocks: int) -> int:
        told(rule)
        found = vllm_hits(requests, blocks) if rule == VLLM else policy_hits(requests, rule, blocks)
        return int(found.sum())

    return tuple(Ruled(rule=rule, blocks=blocks, hits=hits(rule, blocks)) for rule in rules for blocks in capacities)
