"""What ``deduplicate`` costs: one-minute sums with and without, every id new.

``python -m benchmarks.deduplicate [EVENTS]``
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.events import events_file

WITHIN = "10m"
ROUNDS = 3


def main() -> None:
    """Time each in turn, the best of some rounds."""
    count = int(sys.argv[1]) if sys.argv[1:] else 5_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = pq.read_table(events_file(count, folder))
        path = folder / "with-ids.parquet"
        ids = pa.compute.multiply(pa.array(range(count), pa.int64()), 2_654_435_761)
        pq.write_table(table.append_column("id", ids), path, row_group_size=1_000_000)
        del table, ids
        best: dict[str, float] = {}
        for turn in range(ROUNDS):
            for case, deduplicate in (("plain", False), ("deduplicate", True)):
                for state in (None, folder / f"state-{case}-{turn}"):
                    label = case if state is None else f"{case}, state="
                    rate = count / _seconds(path, folder / f"out-{case}-{turn}", deduplicate, state)
                    best[label] = max(best.get(label, 0), rate)
        for label, rate in best.items():
            print(f"{label:<20} {rate:>12,.0f} events/s")


def _seconds(path: Path, out: Path, deduplicate: bool, state: Path | None) -> float:
    stream = lw.read_parquet(str(path), time="at", watermark=lw.BoundedDisorder("10s"))
    if deduplicate:
        stream = stream.deduplicate(id="id", within=WITHIN)
    pipeline = stream.key_by("key").window(lw.FixedWindows("1m")).aggregate(total=lw.sum("value"))
    began = time.perf_counter()
    if state is None:
        for _ in pipeline.run_batches():
            pass
    else:
        pipeline.write_parquet(out).run(state=state, progress=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
