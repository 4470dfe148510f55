"""Digests of what was found once, kept in a file of tests/data: no evidence that it is right, but of what changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def digest(lines: Iterable[str]) -> str:
    """Of lines, a digest short enough to be read in a diff."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
