"""Whether the count is right: the learner's counter, what was seen, and the formula, compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvtally.frontends.lab.sandbox import Reply
from kvtally.frontends.lab.steps import Case, plain

PROJECTIONS = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the three figures of one call say: a mistake, or a remark on a right count."""

    counter: int | None
    seen: int | None
    formula: int
    mistake: str = ""
    remark: str = ""


def judged(case: Case, reply: Reply, value_right: bool) -> Verdict:
    """The verdict on one call whose terms are compared; without traced numbers only the counter is."""
    assert case.terms is not None
    traced = not case.own
    terms = {str(term): int(n) for term, n in reply.report["terms"].items()}
    formula, counter = sum(case.terms.values()), reply.counter
    seen = sum(terms.values()) if traced else None
    mistake, remark = "", ""
    if counter is None:
        mistake = "`multiplications` is no longer a whole number: keep it a plain int, and add 1 to it in mul"
    elif seen is None:
        mistake = "" if counter == formula else f"the counter says {counter:,}, expected {formula:,}"
    elif seen != formula or terms != dict(case.terms):
        mistake, remark = _unlike(case, terms, reply, value_right)
    elif counter != seen:
        mistake = _counter(case, counter, seen)
    return Verdict(counter=counter, seen=seen, formula=formula, mistake=mistake, remark=remark)


def _counter(case: Case, counter: int, seen: int) -> str:
    """A sentence on a counter that does not say what was seen."""
    if counter < seen:
        were = "multiplication was" if seen == 1 else "multiplications were"
        return f"the counter was bypassed: it says {counter:,}, and {seen:,} {were} seen; use mul for each"
    extra = counter - seen
    pairs = case.terms["qk"] // _width(case) if case.terms and "qk" in case.terms else 0
    if pairs and extra in (pairs, 2 * pairs):
        return f"the counter has {extra:,} too many: softmax and 1/sqrt(d) are not counted, use plain / and *"
    if counter == 2 * seen:
        return "every multiplication is counted twice: add 1 in mul and nowhere else"
    return f"the counter says {counter:,}, and {seen:,} were seen: the counter is set, or counts something else"


def _width(case: Case) -> int:
    """d: the length of the innermost vectors of the first argument."""
    inner = plain(case.args[0])
    while isinstance(inner[0], list):
        inner = inner[0]
    return len(inner)


def _unlike(case: Case, terms: Mapping[str, int], reply: Reply, value_right: bool) -> tuple[str, str]:
    """A mistake or a remark on multiplications that are not those of the formula."""
    assert case.terms is not None
    seen, formula, counter = sum(terms.values()), sum(case.terms.values()), reply.counter or 0
    if reply.report["revealed"]:
        return "numbers were turned into plain floats (float, int, round, struct): the grader lost sight of them", ""
    if seen == 0:
        hidden = f", though the counter says {counter:,}: the result is hard-coded" if value_right and counter else ""
        return f"not one multiplication was seen{hidden}", ""
    if value_right and seen < formula:
        if counter == seen:
            return _leaner(case, terms, seen, formula)
        return f"the counter says {counter:,}, but only {seen:,} multiplications were seen", ""
    if terms.get("other"):
        return f"{terms['other']:,} multiplications belong to no term: what is multiplied with what?", ""
    return _rebuilt(case, terms) or _by_term(case.terms, terms), ""


def _leaner(case: Case, terms: Mapping[str, int], seen: int, formula: int) -> tuple[str, str]:
    assert case.terms is not None
    if case.call == "run_without_cache" and 0 < terms.get("k_proj", 0) < case.terms["k_proj"]:
        return (
            "well done, this is a cache already! But this step is the slow loop to compare it with: "
            "call step_without_cache on every prefix, and keep your idea for the next step",
            "",
        )
    fewer = ", ".join(f"{t} {terms.get(t, 0):,} for {n:,}" for t, n in case.terms.items() if terms.get(t, 0) < n)
    return "", f"leaner than asked, and right: {seen:,} multiplications for {formula:,} ({fewer})"


def _rebuilt(case: Case, terms: Mapping[str, int]) -> str:
    """A sentence where projections are made again though their result is kept, or pairs are too many."""
    assert case.terms is not None
    more = [t for t in case.terms if terms.get(t, 0) > case.terms[t]]
    cached = case.call in ("run_with_cache", "run_with_window", "run_batch", "run_bidirectional")
    if cached and {"k_proj", "v_proj"} <= set(more):
        return "k and v of old tokens are made again at every step: project only the newest token, read the rest"
    if cached and more == ["q_proj"]:
        return "queries of old tokens are made again: only the newest query attends, the others are done"
    if "qk" in more and not set(more) & set(PROJECTIONS):
        return "queries of old tokens attend again, or a query meets keys it should not: only the newest attends"
    return ""


def _by_term(formula: Mapping[str, int], terms: Mapping[str, int]) -> str:
    """A sentence that names the terms with too many or too few multiplications."""
    names = [t for t in {**formula, **terms} if terms.get(t, 0) != formula.get(t, 0)]
    return "; ".join(f"{t}: {terms.get(t, 0):,} seen, expected {formula.get(t, 0):,}" for t in names)


def triangle(reply: Reply, length: int) -> list[str]:
    """Which token was projected at which step, a line a step: how many of q, k and v were made.

    A step is what was done up to and with the query of that token.
    """
    made: dict[tuple[int, int], set[str]] = {}
    for step, token, term, _ in reply.report["served"]:
        made.setdefault((step, token), set()).add(term)
    head = "  step   " + " ".join(f"{j + 1:2}" for j in range(length)) + "   <- token"
    rows = [
        f"  {t + 1:4}   " + " ".join(f"{len(made.get((t, j), ())) or '.':>2}" for j in range(length)).rstrip()
        for t in range(length)
    ]
    return [head, *rows]
