"""``make bench``: measure, and print the tables of ``benchmarks/README.md``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    aggregates,
    durability,
    graphs,
    growth,
    joins,
    latency,
    memory_limit,
    objects,
    over,
    patterns,
    process,
    variants,
)
from benchmarks.machine import machine
from benchmarks.open_windows import bytes_per_window, steps_per_second
from benchmarks.throughput import measure

_DATA = Path(__file__).parent / ".data"
_EVENTS = 5_000_000


def main(given: Sequence[str] | None = None) -> None:
    """Run the benchmarks the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--events",
        type=int,
        help=f"events in the file, by default {_EVENTS:,}; the most events that growth goes to, by "
        f"default {growth.MOST_EVENTS:,}",
    )
    parser.add_argument("--plot", type=Path, help="where growth is drawn, as SVG")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, per case")
    parser.add_argument("--open", type=int, default=1_000_000, help="open windows, for steps")
    parser.add_argument(
        "--long", type=int, default=30_000_000, help="events in the file, to commit some times"
    )
    parser.add_argument("--bundles", type=int, default=1_000, help="bundles, for latency")
    parser.add_argument("--held", type=int, default=5_000_000, help="open windows, for memory")
    parser.add_argument(
        "--states", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000],
        help="open windows, for commits",
    )  # fmt: skip
    parser.add_argument(
        "--many", type=int, default=22_000_000, help="events, for more windows than memory"
    )
    parser.add_argument("--limit", default="1GB", help="the memory limit of these")
    parser.add_argument("--only", nargs="+", choices=_TABLES, default=_TABLES, help="tables")
    args = parser.parse_args(given)
    args.most = args.events or growth.MOST_EVENTS
    args.events = args.events or _EVENTS
    print(machine("numpy", "pyarrow", "polars"))
    for name in args.only:
        print()
        _TABLES[name](args)


def _speed(args: argparse.Namespace) -> None:
    print(
        "| case | bundle | numpy | numba | Polars, 1 thread | Polars, all | numba : 1 thread "
        "| numba : all | target | panes |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for timing in measure(args.events, args.rounds, _DATA):
        case = timing.case
        speeds = (*timing.speed.values(), *timing.polars)
        one, every = timing.ratio
        print(
            f"| {case.name} | {case.bundle_size:,} | "
            + " | ".join(f"{speed / 1e6:.2f} M" for speed in speeds)
            + f" | {one:.2f} | {every:.2f} | ≥ {case.target} | {timing.panes:,} |",
            flush=True,
        )


def _open_windows(args: argparse.Namespace) -> None:
    print("| open windows | figure | measured | target |")
    print("|---|---|---|---|")
    for windows, target in (("fixed", 5_000), ("sessions", 15_000)):
        speed = steps_per_second(windows, args.open, 20_000)
        print(
            f"| {args.open:,} {windows} | bundles of one, steps/s | {speed:,.0f} | ≥ {target:,} |"
        )
    for windows in ("fixed", "sessions"):
        size = bytes_per_window(windows, args.held)
        print(f"| {args.held:,} {windows} | bytes per (key, window) | {size:.0f} | ≤ 250 |")


def _durable(args: argparse.Namespace) -> None:
    print("| written to Parquet | in memory, events/s | with state, events/s | ratio | target |")
    print("|---|---|---|---|---|")
    for found in durability.ratios(args.long, args.rounds, _DATA):
        print(
            f"| {found.case} | {found.in_memory / 1e6:.2f} M | {found.durable / 1e6:.2f} M "
            f"| {found.ratio:.2f} | ≥ {durability.RATIO_TARGET} |",
            flush=True,
        )


def _commits(args: argparse.Namespace) -> None:
    print("| open windows | commit of 1,000 rows, ms | bytes | open, s | restore, s |")
    print("|---|---|---|---|---|")
    for count in args.states:
        found = durability.commits(count, _DATA)
        print(
            f"| {count:,} | {found.commit_ms:.1f} | {found.commit_bytes:,} "
            f"| {found.open_seconds:.2f} | {found.restore_seconds:.1f} |",
            flush=True,
        )


def _memory(args: argparse.Namespace) -> None:
    print("| state | limit | most open | events/s | ratio | resident, GB | target |")
    print("|---|---|---|---|---|---|---|")
    for case in memory_limit.CASES:
        speeds = []
        for limit in ("none", args.limit):
            found = memory_limit.measure(args.many, case, limit, _DATA)
            speeds.append(found.events_per_second)
            target = f"≥ {memory_limit.RATIO_TARGET}, ≤ {memory_limit.RSS_TARGET_GB} GB"
            print(
                f"| {case} | {limit} | {found.open_windows:,} | {speeds[-1] / 1e6:.2f} M "
                f"| {speeds[-1] / speeds[0]:.2f} | {found.resident_gb:.2f} "
                f"| {'' if limit == 'none' else target} |",
                flush=True,
            )


def _process(args: argparse.Namespace) -> None:
    print("| keyed computation, bundles of 50,000 | records/s | emitted | target |")
    print("|---|---|---|---|")
    for found in process.measure(args.events, args.rounds, _DATA):
        print(f"| {found.case} | {found.per_second:,.0f} | {found.emitted:,} | {found.target} |")


def _graphs(args: argparse.Namespace) -> None:
    print(
        "| stage boundary | records over it | of the stage before it | of the one behind it "
        "| target |"
    )
    print("|---|---|---|---|---|")
    for found in graphs.boundaries(args.events, args.rounds, _DATA):
        print(
            f"| {found.case} | {found.crossing:,} of {found.events:,} | {found.of_before:.1%} "
            f"| {found.of_behind:.1%} | ≤ {graphs.BOUNDARY_TARGET:.0%} |",
            flush=True,
        )
    print("\n| partitions of a source | events/s | against one | target |")
    print("|---|---|---|---|")
    for partitions, speed, cost in graphs.partitions(args.events, args.rounds, _DATA):
        print(
            f"| {partitions:,} | {speed / 1e6:.2f} M | {cost:+.1%} "
            f"| ≤ {graphs.PARTITIONS_TARGET:.0%} |",
            flush=True,
        )
    print("\n| stage | its watermark behind the newest event, s: mean | most | panes |")
    print("|---|---|---|---|")
    for lag in graphs.lags(args.events, _DATA):
        print(f"| {lag.stage} | {lag.mean:.1f} | {lag.most:.1f} | {lag.panes:,} |", flush=True)


_TABLES: dict[str, Callable[[argparse.Namespace], None]] = {
    "speed": _speed,
    "open": _open_windows,
    "durable": _durable,
    "latency": lambda args: latency.show(args.bundles, args.rounds, _DATA),
    "commits": _commits,
    "memory": _memory,
    "process": _process,
    "graphs": _graphs,
    "joins": lambda args: joins.show(min(args.events, 1_000_000), args.rounds),
    "variants": lambda args: variants.show(args.events, args.rounds, _DATA),
    "aggregates": lambda args: aggregates.show(args.events, args.rounds),
    "patterns": lambda args: patterns.show(min(args.events, 1_000_000), args.rounds),
    "over": lambda args: over.show(min(args.events, 1_000_000), args.rounds),
    "objects": lambda args: objects.show(min(args.events, 1_000_000), args.rounds),
    "growth": lambda args: growth.show(args.most, args.rounds, args.plot),
}


if __name__ == "__main__":
    main()
