"""``python -m benchmarks.state_store``: what a state store on RocksDB costs, and how it is tuned.

Rows are those of windows: a key of 21 bytes (operator, key group, table, key, end) and a value of
48 bytes of which much is alike, as counts and small sums are. Each commit is synced.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from lowwater.state.key_layout import END, below, encode_int64, group_range, table_prefix
from lowwater.state.memory import MemoryStore
from lowwater.state.rocks import RocksStore, Tuning
from lowwater.state.store import Batch, StateStore

_GROUPS = 128
_CHILD = """
import os, sys
from pathlib import Path
from benchmarks.state_store import fill
from lowwater.state.rocks import RocksStore
store = RocksStore(sys.argv[1])  # kept: what is let go of is closed
fill(store, int(sys.argv[2]), int(sys.argv[3]))
os._exit(0)
"""


def rows(ids: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return keys (without operator) and values of windows, as uint8 columns."""
    keys = np.empty((len(ids), 19), dtype=np.uint8)
    keys[:, :2] = (ids % _GROUPS).astype(">u2").view(np.uint8).reshape(-1, 2)
    keys[:, 2] = 1
    keys[:, 3:11] = encode_int64(ids)
    keys[:, 11:] = encode_int64(ids % 1_000 * 60_000_000)
    values = np.zeros((len(ids), 6), dtype=np.float64)
    values[:, 0] = ids % 7
    values[:, 1] = np.sqrt(ids)
    return keys, values.view(np.uint8)


def batches(ids: NDArray[np.int64], size: int) -> Iterator[Batch]:
    """Yield batches of rows."""
    for at in range(0, len(ids), size):
        batch = Batch()
        batch.put_columns(b"\0\1", *rows(ids[at : at + size]))
        yield batch


def keys_of(ids: NDArray[np.int64]) -> list[bytes]:
    """Return the whole keys of windows."""
    return [b"\0\1" + key.tobytes() for key in rows(ids)[0]]


def fill(store: StateStore, count: int, size: int) -> list[float]:
    """Write windows in an order that is not that of their keys; return the time of each commit."""
    ids = np.random.default_rng(0).permutation(count)
    return timed_commits(store, batches(ids, size))


def timed_commits(store: StateStore, changes: Iterator[Batch]) -> list[float]:
    """Commit batches; return the seconds each took, the building of it included."""
    seconds: list[float] = []
    while True:
        start = perf_counter()
        batch = next(changes, None)
        if batch is None:
            return seconds
        store.commit(batch)
        seconds.append(perf_counter() - start)


def gets_per_second(store: StateStore, ids: NDArray[np.int64], size: int = 10_000) -> float:
    """Return how many rows a second come back in batches of random keys."""
    parts = [keys_of(ids[at : at + size]) for at in range(0, len(ids), size)]
    start = perf_counter()
    for part in parts:
        store.get(part)
    return len(ids) / (perf_counter() - start)


def scans_per_second(store: StateStore) -> float:
    """Return how many rows a second a scan of everything yields."""
    start = perf_counter()
    count = sum(1 for _ in store.scan(b"", END))
    return count / (perf_counter() - start)


def disk_bytes(path: Path) -> int:
    """Return the size of all files."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def report_store(count: int, directory: Path) -> None:
    """Print the table of one store with the default options."""
    random = np.random.default_rng(1)
    with RocksStore(directory / "small") as store:
        seconds = fill(store, 200_000, 1_000)
        p50, p95 = np.percentile(seconds, [50, 95]) * 1e3
        line(
            "puts/s, a sync per 1,000 rows",
            200_000 / sum(seconds),
            f"p50 {p50:.2f} p95 {p95:.2f} ms",
        )
        one = timed_commits(store, batches(random.integers(0, 200_000, 500), 1))
        p50, p95 = np.percentile(one, [50, 95]) * 1e3
        line("commits/s of one row", 500 / sum(one), f"p50 {p50:.2f} p95 {p95:.2f} ms")
    with RocksStore(directory / "large") as store:
        seconds = fill(store, count, 50_000)
        line(
            "puts/s, a sync per 50,000 rows",
            count / sum(seconds),
            f"{disk_bytes(directory / 'large') >> 20} MB",
        )
        for held, name in ((count, "there"), (2 * count, "not there")):
            ids = random.integers(held - count, held, 200_000)
            line(f"gets/s of random rows, {name}", gets_per_second(store, ids))
        line("gets/s of one row", gets_per_second(store, random.integers(0, count, 20_000), 1))
        line("rows/s of a scan", scans_per_second(store))
        updates = timed_commits(store, batches(random.integers(0, count, count), 50_000))
        line("updates/s, a sync per 50,000 rows", count / sum(updates))
    start = perf_counter()
    RocksStore(directory / "large").close()
    line(f"opening {count:,} rows, closed before, ms", (perf_counter() - start) * 1e3)
    report_ranges(directory / "large", count)
    for size in (1_000, 50_000):
        command = [
            sys.executable,
            "-c",
            _CHILD,
            str(directory / f"killed {size}"),
            str(count),
            str(size),
        ]
        subprocess.run(
            command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
        start = perf_counter()
        with RocksStore(directory / f"killed {size}") as store:
            took = perf_counter() - start
            assert store.verify() == count
        line(f"opening {count:,} rows, killed before ({size:,} per commit), ms", took * 1e3)


def report_ranges(path: Path, count: int) -> None:
    """Print what deleting by range costs, and what reads cost afterwards."""
    with RocksStore(path) as store:
        batch = Batch()
        batch.delete_range(*group_range("stage 1", 5))
        start = perf_counter()
        store.commit(batch)
        line(
            f"dropping a key group ({count // _GROUPS:,} rows), ms", (perf_counter() - start) * 1e3
        )
        ids = np.random.default_rng(2).integers(0, count, 50_000)
        for rounds in (1, 10, 100):
            batch = Batch()
            for group, n in itertools.product(range(_GROUPS), range(rounds)):
                batch.delete_range(*below(table_prefix("stage 1", group, 2), n * 1_000))
            start = perf_counter()
            store.commit(batch)
            took = (perf_counter() - start) * 1e3
            start = perf_counter()
            store.get([b"\0\1"])
            first = (perf_counter() - start) * 1e3
            speed = gets_per_second(store, ids)
            scan = scans_per_second(store)
            note = (
                f"first get {first:.2f} ms, then {speed:,.0f} gets/s, {scan:,.0f} rows/s of a scan"
            )
            line(f"expiring {_GROUPS * rounds:,} ranges in one commit, ms", took, note)


def report_memory(count: int) -> None:
    """Print the same of the store in memory."""
    with MemoryStore() as store:
        seconds = fill(store, count, 50_000)
        line("memory: puts/s in 50,000s", count / sum(seconds))
        line(
            "memory: gets/s",
            gets_per_second(store, np.random.default_rng(1).integers(0, count, 200_000)),
        )
        line("memory: rows/s of a scan", scans_per_second(store))


def report_tunings(count: int, rounds: int, directory: Path) -> None:
    """Print one line per set of options: load, update twice over, read; medians of rounds."""
    varied: list[dict[str, str | int]] = [{}]
    varied += [{"compression": name} for name in ("none", "zstd")]
    varied += [{"compaction": "universal"}]
    varied += [{"block_bytes": size << 10} for size in (4, 8, 16)]
    varied += [{"bloom_bits": bits} for bits in (6, 16)]
    varied += [{"memtable_bytes": size << 20} for size in (8, 16, 32, 64, 128)]
    base = Tuning()
    varied = [each for each in varied if not each.items() & asdict(base).items()]
    figures: list[list[list[float]]] = [[] for _ in varied]
    for turn, (number, changed) in itertools.product(range(rounds), enumerate(varied)):
        tuning = Tuning(**asdict(base) | changed)
        figures[number].append(measured(tuning, count, directory / f"{turn} {number}"))
    print("| options | load/s | updates/s | gets/s | absent/s | scan/s | MB |")
    print("|---|---|---|---|---|---|---|")
    for changed, taken in zip(varied, figures, strict=True):
        *speeds, size = np.median(taken, axis=0)
        cells = " | ".join(f"{speed / 1e3:,.0f} k" for speed in speeds)
        print(f"| {changed or base} | {cells} | {size:.0f} |", flush=True)


def measured(tuning: Tuning, count: int, path: Path) -> list[float]:
    """Return rows a second of load, update, get, get of what is not there, scan; and MB."""
    random = np.random.default_rng(1)
    with RocksStore(path, tuning=tuning) as store:
        load = count / sum(fill(store, count, 50_000))
        ids = random.integers(0, count, 2 * count)
        update = len(ids) / sum(timed_commits(store, batches(ids, 50_000)))
        get = gets_per_second(store, random.integers(0, count, 200_000))
        absent = gets_per_second(store, random.integers(count, 2 * count, 200_000))
        scan = scans_per_second(store)
    size = disk_bytes(path) >> 20
    shutil.rmtree(path)
    return [load, update, get, absent, scan, size]


def line(what: str, figure: float, note: str = "") -> None:
    """Print a line of the table."""
    print(
        f"| {what} | {figure:,.0f} | {note} |"
        if figure >= 100
        else f"| {what} | {figure:.2f} | {note} |",
        flush=True,
    )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state_store", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tunings", action="store_true", help="compare options instead")
    parser.add_argument("--rounds", type=int, default=3, help="of --tunings")
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        if args.tunings:
            report_tunings(args.rows, args.rounds, Path(directory))
            return
        print("| RocksDB | measured | |\n|---|---|---|")
        report_store(args.rows, Path(directory))
        report_memory(min(args.rows, 200_000))


if __name__ == "__main__":
    main()
