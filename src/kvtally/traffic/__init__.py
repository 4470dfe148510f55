"""ANSWERS FROM REAL TRAFFIC. numpy, pyarrow, numba live here."""

from importlib.util import find_spec

from kvtally.core.errors import MissingExtraError

if _lacks := [name for name in ("numpy", "pyarrow") if find_spec(name) is None]:
    raise MissingExtraError(
        f"`kvtally.traffic` reads traces and needs {_lacks[0]}", hint="pip install 'kvtally[traffic]'"
    )

from kvtally.traffic.policies import policy_hits
from kvtally.traffic.prices import Price, prices
from kvtally.traffic.read import read
from kvtally.traffic.requests import Requests
from kvtally.traffic.runs import Runs, runs
from kvtally.traffic.why import Why, why

__all__ = ["Price", "Requests", "Runs", "Why", "policy_hits", "prices", "read", "runs", "why"]
