"""Speed of `replay`: every capacity of a real trace, one-block requests, Parquet, memory, growth; and of its peers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
from measure import exponent, seconds, side_by_side, write

from kvtally.traffic.canonical import write_parquet
from kvtally.traffic.read import read
from kvtally.traffic.replay import replay
from kvtally.traffic.requests import Requests, picked
from kvtally.traffic.runs import runs
from kvtally.traffic.stack import stack_runs

SHARED = Path(os.environ.get("KVTALLY_SHARED", Path(__file__).parents[2] / "shared"))
TRACE = SHARED / "traces" / "kv-cache-tester" / "claude_code_710_runs.jsonl.zst"
CAPACITIES = 9
ZIPF, DISTINCT = 50_000_000, 1_000_000
SESSIONS, TURNS = (100, 1_000, 10_000), 25  # of 16, 48, 80 … blocks: 10,000 accesses a session
Row = tuple[str, str, str]


@numba.njit(cache=True)
def bare(ids: np.ndarray, seen: np.ndarray) -> int:
    """How many different ids there are: one look and one write for each."""
    found = 0
    for i in ids:
        found += seen[i] == 0
        seen[i] = 1
    return found


def a_second(n: int, time: float) -> str:
    return f"{n / time / 1e6:,.1f} M accesses/s"


def all_capacities(requests: Requests) -> Iterator[Row]:
    def one_pass() -> None:
        bare(requests.ids, np.zeros(requests.blocks, np.uint8))

    mine, plain, ratio = side_by_side(lambda: seconds(lambda: runs(requests)), lambda: seconds(one_pass))
    versus = f"{ratio:.2f}x a bare numba pass over the ids ({a_second(requests.accesses, plain)})"
    yield "`runs`, the Claude Code trace, loaded", a_second(requests.accesses, mine), versus
    both, _, ratio = side_by_side(lambda: seconds(lambda: replay(requests)), lambda: seconds(lambda: runs(requests)))
    yield "`replay`, the same: both curves, every capacity", a_second(requests.accesses, both), f"{ratio:.2f}x `runs`"


def kvcache_simulator(requests: Requests, folder: Path) -> Iterator[Row]:
    """Its C++ core, given the trace in its own binary form, under LRU alone."""
    if find_spec("kvcache_sim") is None:
        yield "kvcache-simulator", "not installed", "-"
        return
    from kvcache_sim.cpp_backend import ensure_cpp_simulator

    requests.ids.astype(np.uint32).tofile(folder / "ids")
    np.full(requests.accesses, requests.block_size, np.uint16).tofile(folder / "tokens")
    requests.offsets[1:].astype(np.uint32).tofile(folder / "ends")
    steps = np.linspace(0.1, 0.9, CAPACITIES) * requests.blocks

    def core(capacities: list[int]) -> float:
        command: list[str] = [str(ensure_cpp_simulator()), "--policy", "batch", "--policies", "lru"]
        files = {"ids": "ids", "tokens": "tokens", "request-ends": "ends"}
        command += [word for name, file in files.items() for word in (f"--{name}", str(folder / file))]
        command += ["--request-count", str(len(requests)), "--total-blocks", str(requests.accesses)]
        command += ["--warmup-requests", "0", "--capacities", ",".join(map(str, capacities))]
        return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    for capacities in (steps.astype(int).tolist(), [int(steps[4])]):
        mine, theirs, ratio = side_by_side(lambda: seconds(lambda: replay(requests)), partial(core, capacities), runs=3)
        how = f"{1 / ratio:.1f}x as fast as kvcache-simulator's core at {len(capacities)} ({theirs:.2f} s)"
        yield "`replay`, every capacity", f"{mine:.2f} s", how


def one_block_stream() -> Row:
    share = np.cumsum(1 / np.arange(1, DISTINCT + 1))
    draw, ids = np.random.default_rng(1), np.empty(ZIPF, np.int32)
    name = draw.permutation(DISTINCT).astype(np.int32)
    for at in range(0, ZIPF, DISTINCT):
        some = ids[at : at + DISTINCT]
        some[:] = name[np.searchsorted(share, share[-1] * draw.random(len(some)))]
    offsets = np.arange(ZIPF + 1)
    stack_runs(offsets[:3], ids[:2], DISTINCT)
    mine = min(seconds(lambda: stack_runs(offsets, ids, DISTINCT)) for _ in range(2))
    what = f"one-block requests, {ZIPF:,}, Zipf over {DISTINCT:,} blocks"
    return what, a_second(ZIPF, mine), f"better of two; {libcachesim(ids[: ZIPF // 10])}"


def libcachesim(ids: np.ndarray) -> str:
    """One LRU at one capacity, its loop in C over a file of ids; GPL, so never a dependency."""
    if find_spec("libcachesim") is None:
        return "libcachesim not installed"
    import libcachesim as peer

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "ids.txt")
        np.savetxt(trace, ids, fmt="%d")
        lru = peer.LRU(cache_size=DISTINCT // 10)
        reader = peer.TraceReader(
            str(trace), peer.TraceType.PLAIN_TXT_TRACE, peer.ReaderInitParam(ignore_obj_size=True)
        )
        return f"libcachesim's LRU, one capacity: {a_second(len(ids), seconds(lambda: lru.process_trace(reader)))}"


def ingestion(folder: Path) -> Row:
    file = str(folder / "trace.parquet")
    write_parquet(read([str(TRACE)]), file)
    mine, theirs, ratio = side_by_side(
        lambda: seconds(lambda: read([file])), lambda: seconds(lambda: read([str(TRACE)])), runs=3
    )
    n = read([file]).accesses
    versus = f"{1 / ratio:.1f}x as fast as JSON lines of runs, .zst ({a_second(n, n and theirs)})"
    return "`read` of what `replay convert` wrote, checked", a_second(n, mine), versus


def peak() -> Row:
    """Memory of a process that answers about the whole trace: its own, where `ru_maxrss` has that of this one, too."""
    code = (
        "import sys; from kvtally.frontends.cli import main; main(['replay', sys.argv[1]]); "
        "print(next(s.split()[1] for s in open('/proc/self/status') if s.startswith('VmHWM')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(TRACE)], check=True, capture_output=True, text=True)
    return "`kvtally replay`, the Claude Code trace", f"{int(done.stderr) / 2**20:.2f} GiB at most", "resident"


def conversations(sessions: int) -> Requests:
    """Sessions in turn, each asking for all it asked for before and 32 blocks more."""
    most, lengths = 16 + 32 * (TURNS - 1), np.repeat(16 + 32 * np.arange(TURNS), sessions)
    starts = np.tile(np.arange(sessions) * most, TURNS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.empty(offsets[-1], np.int32)
    for at in range(0, len(starts), sessions):
        turn = slice(at, at + sessions)
        ids[offsets[at] : offsets[at + sessions]] = picked(starts[turn], lengths[turn])
    zeros = np.zeros(len(starts), np.int64)
    one = {name: ("",) for name in ("session", "model", "tenant")}
    columns = {"output_tokens": zeros, "session": zeros, "model": zeros, "tenant": zeros, "names": one}
    time = np.arange(len(starts), dtype=np.float64)
    return Requests(offsets=offsets, ids=ids, time=time, input_tokens=64 * lengths, block_size=64, **columns)


def growth() -> Row:
    traces = [conversations(n) for n in SESSIONS]
    times = [min(seconds(lambda t=t: replay(t)) for _ in range(3)) for t in traces]
    sizes = [t.accesses for t in traces]
    shown = ", ".join(f"{n / 1e6:,.0f} M: {time:.2f} s" for n, time in zip(sizes, times, strict=True))
    return "`replay`, conversations of 25 turns", f"growth exponent {exponent(sizes, times):.2f}", shown


def main() -> None:
    requests = read([str(TRACE)])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: list[Callable[[], Iterator[Row]]] = [
            partial(all_capacities, requests),
            partial(kvcache_simulator, requests, folder),
            lambda: iter([growth(), one_block_stream(), ingestion(folder), peak()]),
        ]
        rows = [row for part in parts for row in part()]
    peers = [
        name for name in ("kvcache-simulator", "libcachesim") if find_spec(name.replace("ulator", "").replace("-", "_"))
    ]
    versions = [f"numba {numba.__version__}, numpy {np.__version__}, pyarrow {pa.__version__}"]
    write("replay", rows, ", ".join([*versions, *(f"{name} {version(name)}" for name in peers)]))
    print(*(" | ".join(row) for row in rows), sep="\n")


if __name__ == "__main__":
    main()
