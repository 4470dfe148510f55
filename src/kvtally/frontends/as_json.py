"""What `--format json` prints: the verb that answered, then the record of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_json(verb: str, record: Mapping[str, Any]) -> str:
    """The record as JSON, the verb's name first.

    >>> print(as_json("count", {"states": 3}))
    {
     "verb": "count",
     "states": 3
    }
    """
    return json.dumps({"verb": verb, **record}, indent=1, ensure_ascii=False)
