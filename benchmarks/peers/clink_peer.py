"""clink: a stream engine in C++, within this process, by SQL over Parquet.

Its event time is an integer of milliseconds, so the events are in Parquet files that have them so:
one for each core, as each of its sources reads whole files, with every other event, so that they
stand at about the same time. Starting the engine is within the time.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyclink

from benchmarks.peers.job import DELAY_S, JOIN, WITHIN_S, Timed, answer_of
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "pyclink"
_CORES = os.cpu_count() or 1
_TABLE = """
    CREATE TABLE {name} (at BIGINT, key VARCHAR, value BIGINT) WITH (
        connector='parquet', format='json', prefix='{path}',
        event_time_column='at', watermark_lag_ms='{lag}'
    );
"""
_WINDOWS = {
    "fixed": "TUMBLE(at, INTERVAL '1' MINUTE)",
    "sessions": "SESSION(at, INTERVAL '30' SECOND)",
}
_SUMS = "SELECT SUM(value) AS total FROM events GROUP BY {windows}, key"
_PAIRS = f"""
    SELECT e.value * 1000 + o.value AS total FROM odd o JOIN even e ON o.key = e.key
    AND o.at BETWEEN e.at + INTERVAL '0' SECOND AND e.at + INTERVAL '{WITHIN_S}' SECOND
"""


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, or join."""
    if windows == JOIN:
        sides = {"even": _folder(path, 0), "odd": _folder(path, 1)}
        query = _PAIRS
    else:
        sides = {"events": _folder(path, None)}
        query = _SUMS.format(windows=_WINDOWS[windows])
    tables = [
        _TABLE.format(name=name, path=folder, lag=1_000 * DELAY_S) for name, folder in sides.items()
    ]
    result = "CREATE TABLE sums (total BIGINT) WITH (connector='collect', format='json');"
    with Stopwatch() as watch, pyclink.Engine(parallelism=_CORES) as engine:
        engine.execute("".join(tables) + result + f"INSERT INTO sums {query}")
        found = engine.collect("sums").read_all()
        engine.await_all()
    return Timed(answer_of(found["total"].to_numpy()), watch.seconds, watch.cpu)


def _folder(path: Path, rest: int | None) -> Path:
    """Return a folder of all events, or of one side of the join, in integers of milliseconds."""
    target = path.with_suffix(f".clink{'' if rest is None else rest}").resolve()
    if not target.exists():
        table = pq.read_table(path)
        at = pa.array(table["at"].cast("int64").to_numpy() // 1_000)
        table = pa.table({"at": at, "key": table["key"].cast("string"), "value": table["value"]})
        if rest is not None:
            table = table.filter(pa.array(table["value"].to_numpy() % 2 == rest))
        half = target.with_suffix(".half")
        half.mkdir(exist_ok=True)
        for core in range(_CORES):
            some = pa.array(np.arange(core, len(table), _CORES))
            pq.write_table(table.take(some), half / f"{core}.parquet")
        half.replace(target)
    return target
