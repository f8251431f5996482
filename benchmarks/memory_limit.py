"""More state than memory is given: speed and resident memory, beside all in memory.

Elements of a million keys advance through event time, a minute's window for nearly each; all
windows stay open for a day of allowed lateness. Some elements are up to half of the whole time
late, so that they touch windows that have left memory long ago.

Of a join, half of the elements are the left side and wait for a day, whether or not their partner,
which is the next element, has come; so each key is touched twice, and late ones after long. Of a
table, each element is the newest row of one of a million keys: all keys are touched at random.

``sliding`` shows a pane for each element and window, and retracts the one before; ``lists`` keeps
the values of sessions; of ``window join`` the two records of a key meet in a window of an hour.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.io.sinks import Callback

_KEYS = 1_000_000
_PER_MINUTE = 250_000
_LATE = 0.02
_MINUTE = 60_000_000
_START = 1_700_000_000_000_000 // _MINUTE * _MINUTE
_WINDOWS: dict[str, lw.WindowFunction] = {
    "fixed": lw.FixedWindows("1m"),
    "sessions": lw.Sessions("10s"),
}
_PAIRED = ("join", "window join")
CASES = (*_WINDOWS, "join", "table", "sliding", "lists", "window join")
RSS_TARGET_GB = 1.5
RATIO_TARGET = 0.2


@final
@dataclass(frozen=True, slots=True)
class Bounded:
    """A run with a limit, or (``limit`` is ``"none"``) all in memory without a state directory."""

    case: str
    limit: str
    events_per_second: float
    open_windows: int
    resident_gb: float


def measure(events: int, case: str, limit: str, folder: Path) -> Bounded:
    """Measure a case of :data:`CASES` in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    file = _file(events, folder, in_pairs=case in _PAIRED)
    command = [sys.executable, "-m", __name__, str(file), case, limit, str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Bounded(case, limit, **json.loads(done.stdout))


def main() -> None:
    """Measure what :func:`measure` asks for and print it as JSON."""
    file, case, limit, folder = sys.argv[1:]
    scratch = tempfile.mkdtemp(dir=folder)
    try:
        print(json.dumps(_run(_pipeline(file, case), limit, Path(scratch) / "state")))
    finally:
        shutil.rmtree(scratch)


def _pipeline(file: str, case: str) -> Any:
    elements = lw.read_parquet(file, time="time", watermark=lw.BoundedDisorder("5s"))
    if case == "table":
        return elements.table(key="key").changes()
    if case in _PAIRED:
        left, right = (elements.filter(lw.col("value") % 2 == side) for side in (0, 1))
        if case == "join":
            return left.join(right, on="key", within="1d", how="left", allowed_lateness="1d")
        hour = lw.FixedWindows("1h")
        return left.join(
            right, on="key", within=hour, accumulation="discarding", allowed_lateness="1d"
        )
    if case == "sliding":
        early = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
        return (
            elements.key_by("key")
            .window(
                lw.SlidingWindows("10m", "1m"),
                trigger=early,
                accumulation="retracting",
                allowed_lateness="1h",
            )
            .aggregate(total=lw.sum("value"), most=lw.max("value"))
        )
    if case == "lists":
        sessions = elements.key_by("key").window(
            lw.Sessions("10m"), accumulation="accumulating", allowed_lateness="1d"
        )
        return sessions.aggregate(values=lw.collect("value"))
    return (
        elements.key_by("key")
        .window(
            _WINDOWS[case],
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="accumulating",
            allowed_lateness="1d",
        )
        .aggregate(total=lw.sum("value"))
    )


def _run(pipeline: Any, limit: str, state: Path) -> dict[str, Any]:
    most = events = 0
    seconds = 0.0

    def look(metrics: lw.Metrics) -> None:
        nonlocal most, events, seconds
        if metrics.open_windows:  # to the last element, not through the end of all windows at once
            most = max(most, metrics.open_windows)
            events, seconds = metrics.events, time.perf_counter() - began

    began = time.perf_counter()
    if limit == "none":
        for _ in pipeline.run_batches(progress=look):
            pass
    else:
        pipeline.write_to(Callback(str)).run(state=state, memory_limit=limit, progress=look)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "events_per_second": events / seconds,
        "open_windows": most,
        "resident_gb": resident / 1e9,
    }


def _file(events: int, folder: Path, *, in_pairs: bool) -> Path:
    path = folder / f"many-{'pairs' if in_pairs else 'windows'}-{events}.parquet"
    if path.exists():
        return path
    random = np.random.default_rng(5)
    unfinished = path.with_suffix(".new")
    with pq.ParquetWriter(unfinished, _SCHEMA) as writer:
        for first in range(0, events, 1 << 20):
            place = np.arange(first, min(first + (1 << 20), events), dtype=np.int64)
            times = place * _MINUTE // _PER_MINUTE
            late = random.random(len(place)) < _LATE
            times -= np.where(late, (random.random(len(place)) * times / 2).astype(np.int64), 0)
            times -= random.integers(0, 4_000_000, len(place))
            keys = place // 2 if in_pairs else random.integers(0, _KEYS, len(place))
            values = place % 2 if in_pairs else random.integers(0, 100, len(place))
            columns = [
                pa.array(_START + np.maximum(times, 0)).cast(_SCHEMA.field("time").type),
                pa.array(keys),
                pa.array(values),
            ]
            writer.write_table(pa.table(columns, schema=_SCHEMA))
    unfinished.rename(path)
    return path


_SCHEMA = pa.schema(
    [("time", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("value", pa.int64())]
)

if __name__ == "__main__":
    main()
