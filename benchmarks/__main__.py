"""``make bench``: measure, and print the tables of ``benchmarks/README.md``."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.open_windows import bytes_per_window, steps_per_second
from benchmarks.throughput import measure

_DATA = Path(__file__).parent / ".data"


def main() -> None:
    """Run the benchmarks the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000, help="events in the file")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, per case")
    parser.add_argument("--open", type=int, default=1_000_000, help="open windows, for steps")
    parser.add_argument("--held", type=int, default=5_000_000, help="open windows, for memory")
    args = parser.parse_args()
    print(_machine())
    print("\n| case | bundle | events/s | Polars events/s | ratio | target | panes |")
    print("|---|---|---|---|---|---|---|")
    for timing in measure(args.events, args.rounds, _DATA):
        case = timing.case
        print(
            f"| {case.name} | {case.bundle_size:,} | {timing.events_per_second / 1e6:.2f} M "
            f"| {timing.polars_per_second / 1e6:.2f} M | {timing.ratio:.2f} "
            f"| ≥ {case.target} | {timing.panes:,} |",
            flush=True,
        )
    print("\n| open windows | figure | measured | target |")
    print("|---|---|---|---|")
    for windows in ("fixed", "sessions"):
        speed = steps_per_second(windows, args.open, 20_000)
        print(f"| {args.open:,} {windows} | bundles of one, steps/s | {speed:,.0f} | ≥ 5,000 |")
    for windows in ("fixed", "sessions"):
        size = bytes_per_window(windows, args.held)
        print(f"| {args.held:,} {windows} | bytes per (key, window) | {size:.0f} | ≤ 250 |")


def _machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    versions = f"numpy {np.__version__}, pyarrow {pa.__version__}, Polars {pl.__version__}"
    return f"{model}, Python {platform.python_version()}, {versions}"


if __name__ == "__main__":
    main()
