"""ANSWERS FROM REAL TRAFFIC. numpy, pyarrow, numba live here."""

from importlib.util import find_spec

from kvtally.core.errors import MissingExtraError

for _needed in ("numpy", "pyarrow"):
    if find_spec(_needed) is None:
        raise MissingExtraError(
            f"`kvtally.traffic` reads traces and needs {_needed}", hint="pip install 'kvtally[traffic]'"
        )
