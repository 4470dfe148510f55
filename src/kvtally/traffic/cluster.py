"""The same on Ray, partitioned: each cache is replayed by one task, wherever its requests were read."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from kvtally.core.errors import InputError, MissingExtraError
from kvtally.traffic.canonical import MAGIC, PLACE, Files, read_files, stored
from kvtally.traffic.coarsen import coarsened
from kvtally.traffic.read_lines import expand, head
from kvtally.traffic.requests import Ids, Ints, Requests, whole_number
from kvtally.traffic.runs import COLUMNS, Runs, joined, runs
from kvtally.traffic.why import Edits, Inside, inside_of, summed

NEEDED = (PLACE, "session", "input_tokens", "ids")  # the columns that tasks read
SETTINGS = {  # of a cluster that is started here: it tells nobody, and reads the few footers without 32 actors
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1",
}
MOST_PARTITIONS = 256  # tasks that caches are shared out among


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the requests of one file belong: the place of each in the whole trace, and its cache."""

    place: Ints
    domain: Ints
    scope: int
    session: int
    ids: type[np.int32 | np.int64]


def replay_on_ray(
    traces: Sequence[str], *, domains: Callable[[Requests], Ints | None], block_size: int | None = None
) -> tuple[Runs, Inside]:
    """The run table of converted traces, and what only their ids tell: those of `runs` and `inside_of` here.

    Ray Data reads the Parquet files, brings the requests of each cache together, and replays each cache in a task;
    a task that dies is run again. This process holds all columns but the ids. `domains` says, from those, which
    cache each request goes to. The cluster is the one that RAY_ADDRESS names, or one started on this machine; it
    must see the files under the same addresses, and have kvtally installed. Ray Data verifies no checksums of pages.
    """
    if find_spec("ray") is None or find_spec("pandas") is None:
        raise MissingExtraError("`--engine ray` needs Ray Data", hint="pip install 'kvtally[traffic,ray]'")
    paths = expand(traces)
    for path in paths:
        if "://" not in path and head(path) != MAGIC:
            raise InputError(
                "no converted trace, which is what `--engine ray` reads",
                where=path,
                hint="kvtally replay convert TRACE… --to FILE.parquet",
            )
    files = read_files(paths, ids=False)
    order = files.order
    whole = files.requests.chosen(order)
    of = domains(whole)
    places = _places(files, order, np.zeros(len(order), np.int64) if of is None else of)
    fine = whole.block_size
    whole = whole if block_size in (None, fine) else coarsened(whole, int(block_size or fine))
    with _cluster():
        answers = [*_answers(paths, places, fine, whole.block_size)]
    parts = ((_ints(one, "chosen"), _table(one, whole)) for one in answers)
    return joined(whole, parts), summed(whole.block_size, (_inside(one) for one in answers))


def _places(files: Files, order: Ints, domains: Ints) -> list[Place]:
    """For each file, where its requests belong."""
    place, ids = np.argsort(order), whole_number(files.blocks)
    ends = [*files.first[1:], len(order)]
    return [
        Place(place=place[first:end], domain=domains[place[first:end]], scope=scope, session=session, ids=ids)
        for first, end, scope, session in zip(files.first, ends, files.scope, files.sessions, strict=True)
    ]


@contextmanager
def _cluster() -> Iterator[None]:
    """A cluster that is there, or one of this machine's cores, ended afterwards; what Ray says goes to stderr."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    there = ray.is_initialized()
    with redirect_stdout(sys.stderr):
        if not there:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            yield
        finally:
            if not there:
                ray.shutdown()


def _answers(paths: Sequence[str], places: Sequence[Place], fine: int, size: int) -> Iterator[dict[str, Any]]:
    """The answer of each cache, as its task gave it."""
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    read = []
    for path, one in zip(paths, places, strict=True):
        system, inner = stored(path)
        rows = ray.data.read_parquet(inner, filesystem=system).select_columns(list(NEEDED))
        at = {"place": ray.put(one)}
        read.append(rows.map_batches(placed, batch_format="pyarrow", batch_size=None, fn_kwargs=at))
    whole = read[0].union(*read[1:]) if len(read) > 1 else read[0]
    caches = len(np.unique(np.concatenate([one.domain for one in places])))
    together = whole.groupby("domain", num_partitions=min(caches, MOST_PARTITIONS))
    sizes = {"fine": fine, "size": size}
    yield from together.map_groups(replayed, batch_format="pyarrow", fn_kwargs=sizes).iter_rows()


def placed(batch: pa.Table, place: Any) -> pa.Table:
    """Requests of one file with their cache, their place in the whole trace, and the ids and sessions of the whole."""
    import ray

    at: Place = ray.get(place)
    number = batch[PLACE].to_numpy()
    ids = _flat(batch["ids"])
    flat = pa.array(ids.flatten().to_numpy().astype(at.ids) + at.ids(at.scope))
    return pa.table(
        {
            "domain": at.domain[number],
            PLACE: at.place[number],
            "session": batch["session"].to_numpy() + at.session,
            "input_tokens": batch["input_tokens"].to_numpy(),
            "ids": pa.LargeListArray.from_arrays(_starts(ids), flat),
        }
    )


def replayed(group: pa.Table, fine: int, size: int) -> pa.Table:
    """One row: what `runs` and `inside_of` say of the requests of one cache."""
    ids = _flat(group["ids"])
    number = group[PLACE].to_numpy()
    zeros = np.zeros(len(number), np.int64)
    unsorted = Requests(
        offsets=_starts(ids),
        ids=ids.flatten().to_numpy(),
        time=zeros.astype(np.float64),
        input_tokens=group["input_tokens"].to_numpy(),
        output_tokens=zeros,
        block_size=fine,
        session=group["session"].to_numpy(),
        model=zeros,
        tenant=zeros,
        names={},
    )
    order = np.argsort(number)
    requests = unsorted.chosen(order)
    requests = requests if size == fine else coarsened(requests, size)
    table, inside = runs(requests), inside_of(requests)
    columns = {name: getattr(table, name) for name in COLUMNS}
    told = {"chosen": number[order], **columns, "edits": np.array(list(asdict(inside.edits).values()))}
    told |= {"sizes": np.array(list(inside.coarser)), "coarser": np.array(list(inside.coarser.values()))}
    return pa.table({**{name: [values] for name, values in told.items()}, "distinct": [table.distinct]})


def _flat(column: pa.ChunkedArray) -> pa.LargeListArray:
    """The lists of a column as one array."""
    whole = pa.concat_arrays(column.cast(pa.large_list(column.type.value_type)).chunks)
    assert isinstance(whole, pa.LargeListArray)
    return whole


def _starts(lists: pa.LargeListArray) -> Ints:
    """Where each list begins in `lists.flatten()`, and where the last ends."""
    offsets: Ints = lists.offsets.to_numpy()
    starts: Ints = offsets - offsets[0]
    return starts


def _ints(answer: dict[str, Any], name: str) -> Ints:
    return np.asarray(answer[name], dtype=np.int64)


def _table(answer: dict[str, Any], whole: Requests) -> Runs:
    columns: dict[str, Ids] = {name: _ints(answer, name) for name in COLUMNS}
    return Runs(requests=whole, distinct=int(answer["distinct"]), **columns)


def _inside(answer: dict[str, Any]) -> Inside:
    follow, edited, near, blocks = _ints(answer, "edits").tolist()
    coarser = dict(zip(_ints(answer, "sizes").tolist(), _ints(answer, "coarser").tolist(), strict=True))
    return Inside(edits=Edits(follow=follow, edited=edited, in_last_block=near, blocks=blocks), coarser=coarser)
