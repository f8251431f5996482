"""``python -m benchmarks.tracing``: CPU seconds of runs without a trace, and with one.

What traces cost a run that has none shows beside a checkout from before there were traces: run this
file on both in turn, ``PYTHONPATH=CHECKOUT python benchmarks/tracing.py --untraced``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa

import lowwater as lw

_KEYS = 10_000


def events(count: int) -> pa.Table:
    """Return events 50 microseconds apart, up to 5 s out of order."""
    random = np.random.default_rng(1)
    at = np.arange(count, dtype=np.int64) * 50 + random.integers(0, 10_000_000, count)
    names = pa.array([f"key{number}" for number in range(_KEYS)])
    codes = pa.array(random.integers(0, _KEYS, count).astype(np.int32))
    keys = pa.DictionaryArray.from_arrays(codes, names)
    return pa.table({"at": at, "key": keys, "value": random.integers(0, 100, count)})


def cpu_seconds(table: pa.Table, windows: Any, **options: Any) -> float:
    """Return the CPU seconds of one run in bundles of 1 000."""
    keyed = lw.from_arrow(table, time="at", watermark=lw.BoundedDisorder("10s")).key_by("key")
    sums = keyed.window(windows).aggregate(total=lw.sum("value"))
    began = time.process_time()
    for _ in sums.run_batches(bundle_size=1_000, progress=False, **options):
        pass
    return time.process_time() - began


def main() -> None:
    """Print the best of some runs, for fixed windows and sessions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--untraced", action="store_true", help="only runs without a trace")
    args = parser.parse_args()
    table = events(args.events)
    ways: list[dict[str, Any]] = [{}] if args.untraced else [{}, {"trace": True}]
    for windows in (lw.FixedWindows("1m"), lw.Sessions("100ms")):
        for how in ways:
            best = min(cpu_seconds(table, windows, **how) for _ in range(args.rounds))
            print(f"{windows} {'traced' if how else 'untraced'}: {best:.4f} s")


if __name__ == "__main__":
    main()
