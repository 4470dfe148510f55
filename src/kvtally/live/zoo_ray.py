"""Visit the architectures of the zoo on a Ray cluster; one is started here where no address is given."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from kvtally.core.errors import MissingExtraError
from kvtally.live.zoo_sweep import Limits, sweep


def sweep_on_ray(wanted: Sequence[str], *, jobs: int = 1, limits: Limits | None = None) -> Iterator[Any]:
    """The row of each architecture as it is done, as `sweep` gives it: each is a Ray task of one CPU.

    A task forks a process of its own on its node, with the same limits. The cluster is the one that
    RAY_ADDRESS names, or `jobs` workers on this machine, which are ended where the caller stops asking.
    """
    if find_spec("ray") is None:
        raise MissingExtraError("`--engine ray` needs Ray", hint="pip install 'kvtally[hf,ray]'")
    import ray

    workers = None if "RAY_ADDRESS" in os.environ else jobs
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        one = ray.remote(num_cpus=1, max_retries=0)(_visited)
        waiting: list[Any] = [one.remote(name, limits) for name in wanted]
        while waiting:
            (done,), waiting = ray.wait(waiting)
            yield (limits or Limits()).row.from_dict(ray.get(done))
    finally:
        ray.shutdown()


def _visited(name: str, limits: Limits | None) -> dict[str, Any]:
    (row,) = sweep([name], limits=limits)
    answered: dict[str, Any] = row.to_dict()
    return answered
