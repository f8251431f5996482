"""lowwater: bundles of 50 000 of the Parquet file, panes as Arrow batches."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import lowwater as lw
from benchmarks.peers.job import BATCH, DELAY_S, Timed, answer_of

DISTRIBUTION = "lowwater"
COUNTED = 5_000_000


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window."""
    kinds = {"fixed": lw.FixedWindows("1m"), "sessions": lw.Sessions("30s")}
    panes = (
        lw.read_parquet(str(path), time="at", watermark=lw.BoundedDisorder(f"{DELAY_S}s"))
        .key_by("key")
        .window(kinds[windows])
        .aggregate(total=lw.sum("value"))
    )
    began = time.perf_counter()
    totals = [batch.values["total"].data for batch in panes.run_batches(bundle_size=BATCH)]
    seconds = time.perf_counter() - began
    return Timed(answer_of(np.concatenate(totals)), seconds)
