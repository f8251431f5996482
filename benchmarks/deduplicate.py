"""What ``deduplicate`` costs: one-minute sums with and without, every id new.

``python -m benchmarks.deduplicate [EVENTS]``

Time is that of the processor, of all threads, so that what else the machine does matters little.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.events import events_file

WITHIN = "10m"
ROUNDS = 5


def main() -> None:
    """Time each in turn, after one round that does not count."""
    count = int(sys.argv[1]) if sys.argv[1:] else 5_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = pq.read_table(events_file(count, folder))
        path = folder / "with-ids.parquet"
        ids = pa.compute.multiply(pa.array(range(count), pa.int64()), 2_654_435_761)
        pq.write_table(table.append_column("id", ids), path, row_group_size=1_000_000)
        del table, ids
        spent: dict[str, list[float]] = {}
        for turn in range(ROUNDS + 1):
            for case, deduplicate in (("plain", False), ("deduplicate", True)):
                for state in (None, folder / f"state-{case}-{turn}"):
                    label = case if state is None else f"{case}, state="
                    seconds = _seconds(path, folder / f"out-{case}-{turn}", deduplicate, state)
                    if turn:
                        spent.setdefault(label, []).append(seconds)
        median = {label: statistics.median(seconds) for label, seconds in spent.items()}
        for label, seconds in median.items():
            print(f"{label:<20} {count / seconds:>12,.0f} events/s of CPU time")
        durable = median["deduplicate, state="]
        print(f"durable to in memory, with deduplicate  {median['deduplicate'] / durable:.2f}")
        print(f"deduplicate to plain, with state=       {median['plain, state='] / durable:.2f}")


def _seconds(path: Path, out: Path, deduplicate: bool, state: Path | None) -> float:
    stream = lw.read_parquet(str(path), time="at", watermark=lw.BoundedDisorder("10s"))
    if deduplicate:
        stream = stream.deduplicate(id="id", within=WITHIN)
    pipeline = stream.key_by("key").window(lw.FixedWindows("1m")).aggregate(total=lw.sum("value"))
    began = time.process_time()
    if state is None:
        for _ in pipeline.run_batches():
            pass
    else:
        pipeline.write_parquet(out).run(state=state, progress=False)
    return time.process_time() - began


if __name__ == "__main__":
    main()
