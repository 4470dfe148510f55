"""What a right answer shows: one sentence where there is something to see in the numbers."""

from __future__ import annotations

from typing import Any

from kvtally.frontends.lab import expected
from kvtally.frontends.lab.sandbox import Reply
from kvtally.frontends.lab.steps import Case, plain


def remark(case: Case, reply: Reply) -> str:
    """The sentence for a call that was answered rightly; empty for most."""
    args: Any = [plain(arg) for arg in case.args]
    if case.own:
        moved = _furthest(expected.run(args[0], args[1]), expected.run(args[0], args[1], store=expected.to_fp16))
        return f"rounding k and v to 16 bits moves the outputs by up to {moved:.1e}"
    if case.call == "run_with_cache" and len({step for step, *_ in reply.report["served"]}) == 1:
        return (
            "all tokens are projected before the first query: fine for a prompt; "
            "a loop that generates gets its tokens one at a time"
        )
    if case.call == "run_bidirectional":
        xs, weights = args
        early, late = (expected.run(some, weights, expected.Flaws(sees="all"))[0] for some in (xs[:-1], xs))
        return (
            f"once the last token comes, the first output moves by {_furthest(early, late):.2f}: "
            "here old outputs go stale, and in a model of several layers old k and v with them"
        )
    if case.call == "run_batch":
        requests, weights = args
        own = expected.batch(requests, weights)
        mixed = [
            expected.run([*other, *xs], weights)[-len(xs) :] for xs, other in zip(requests, requests[::-1], strict=True)
        ]
        return (
            f"had each row read the other's k and v as well, outputs would be off by up to {_furthest(own, mixed):.2f}"
        )
    return ""


def _furthest(a: Any, b: Any) -> float:
    """The largest distance between two nested lists of one shape."""
    if isinstance(a, list):
        return max(_furthest(p, q) for p, q in zip(a, b, strict=True))
    return float(abs(a - b))
