"""``python -m benchmarks.spark``: the same windowed sum on Spark, in this library's way and others.

Each query runs in a driver of its own over the same files, a file per micro-batch, into Spark's
``noop`` sink, on ``local[2]`` with the settings that :func:`lowwater.spark.recommended`
gives, whichever query it is. A figure is the median of the batches behind the first ones, in which
the JVM still compiles what it runs. Queries run in turn, ``--rounds`` times; a ratio is the median
of the rounds'. As windows pile up there is no such median, so a small run goes before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from benchmarks.spark_events import batches_folder, growing_folder

_DATA = Path(__file__).parent / ".data"
_FIXED, _SESSIONS = "lowwater-fixed", "lowwater-sessions"
_TARGETS: list[tuple[str, str, float | None]] = [
    (_FIXED, "spark-fixed", 1.2),
    (_SESSIONS, "spark-sessions", 1.0),
    (_FIXED, "per-key", 4.0),
    (_FIXED, "transform-with-state", None),
]
_ORDER = ["spark-fixed", _FIXED, "spark-sessions", _SESSIONS, "per-key", "transform-with-state"]


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """What a query took.

    Args:
        seconds: Each batch, from trigger to commit.
        add_batch: The part of it that runs the query.
        warm: Whether batches are left behind those that warm up; else only the last one counts.
    """

    seconds: list[float]
    add_batch: list[float]
    warm: bool

    @property
    def median(self) -> float:
        """Seconds of a batch."""
        return statistics.median(self.seconds)


def measured(
    query: str,
    folder: Path,
    most_seconds: float,
    options: dict[str, Any],
    *,
    warm_up: int = 0,
    before: Path | None = None,
) -> Timing | str:
    """Run a query in a driver of its own; return its timing, or why there is none.

    Args:
        query: Which.
        folder: Its files, one for each batch.
        most_seconds: About how long.
        options: Of ``to_spark``.
        warm_up: How many of the first batches do not count.
        before: Files that the query runs over first.
    """
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spark_queries", query, str(folder)]
    command += ["--most-seconds", str(most_seconds)]
    if query.startswith("lowwater"):
        command += ["--options", json.dumps(options)]
    if before is not None:
        command += ["--before", str(before)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if done.returncode:
        sys.stderr.write(done.stderr[-4_000:])
        errors = [line for line in done.stderr.splitlines() if "Error: " in line]
        return errors[-1] if errors else f"it ended with {done.returncode}"
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    if not found["batches"]:
        return f"no batch within {4 * most_seconds:.0f} s"
    warm = len(found["batches"]) > warm_up
    first = warm_up if warm else len(found["batches"]) - 1
    return Timing(found["batches"][first:], found["add_batch"][first:], warm)


def report_speed(rows: int, keys: int, args: argparse.Namespace) -> None:
    """Print what each query takes, then the ratios that have a target."""
    folder = batches_folder(rows, keys, args.batches, _DATA)
    print(f"\n{rows:,} rows a batch, {keys:,} keys\n")
    print("| query | s a batch | of it addBatch | batches |\n|---|---|---|---|")
    queries = args.only or _ORDER
    timings: dict[str, list[Timing]] = {query: [] for query in queries}
    for number in range(args.rounds):
        for query in queries:
            timing = measured(query, folder, args.most_seconds, args.options, warm_up=args.warm_up)
            if isinstance(timing, str):
                print(f"| {query} | {timing} | | |", flush=True)
                continue
            timings[query].append(timing)
            if number == args.rounds - 1:
                _report_query(query, timings[query])
    for ours, other, target in _TARGETS:
        pairs = zip(timings.get(ours, ()), timings.get(other, ()), strict=False)
        found = [(theirs.median / own.median, theirs.warm and own.warm) for own, theirs in pairs]
        if found:
            wanted = "" if target is None else f"≥ {target}"
            ratio = statistics.median(ratio for ratio, _ in found)
            how = "" if all(warm for _, warm in found) else "not warm"
            print(f"| {ours} beside {other} | {ratio:.2f} | {wanted} | {how} |", flush=True)


def _report_query(query: str, timings: list[Timing]) -> None:
    seconds = [each for timing in timings for each in timing.seconds]
    add = [each for timing in timings for each in timing.add_batch]
    count = f"{len(seconds)}{'' if all(timing.warm for timing in timings) else ', not warm'}"
    figures = f"{statistics.median(seconds):.2f} | {statistics.median(add):.2f}"
    print(f"| {query} | {figures} | {count} |", flush=True)


def report_growth(rows: int, args: argparse.Namespace) -> None:
    """Print what a batch takes as windows stay open."""
    count = args.open // rows + 1
    folder = growing_folder(rows, count, _DATA)
    before = growing_folder(rows // 25, args.warm_up, _DATA)
    print(f"\n{rows:,} new windows a batch; s a batch\n")
    print("| query | " + " | ".join(f"{rows * at:,}" for at in range(1, count)) + " |")
    print("|---|" + "---|" * (count - 1))
    ways: list[tuple[str, dict[str, Any]]] = [("spark-growing", {})]
    ways += [("lowwater-growing", {**args.options, **way}) for way in args.ways]
    for query, options in ways:
        timing = measured(query, folder, 5 * args.most_seconds, options, before=before)
        name = f"{query} {json.dumps(options) if options else ''}".strip()
        if isinstance(timing, str):
            print(f"| {name} | {timing} |", flush=True)
            continue
        # Batch n, counted from 0, begins with n * rows open windows.
        cells = [f"{each:.2f}" for each in timing.seconds[1:]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[250_000])
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--batches", type=int, default=40, help="files, one for each batch")
    parser.add_argument("--warm-up", type=int, default=20, help="batches that do not count")
    parser.add_argument("--rounds", type=int, default=1, help="how often each query runs")
    parser.add_argument("--open", type=int, default=2_000_000, help="open windows, 0 for none")
    parser.add_argument("--growth-rows", type=int, default=250_000, help="rows a batch, for those")
    parser.add_argument("--most-seconds", type=float, default=120, help="per query, about")
    parser.add_argument("--only", nargs="+", choices=_ORDER, help="queries")
    parser.add_argument("--options", type=json.loads, default={}, help="of to_spark, as JSON")
    parser.add_argument(
        "--ways",
        type=json.loads,
        nargs="+",
        default=[{"state": "inline"}],
        help="options that growth compares: another way to keep state, another number of groups",
    )
    parser.add_argument("--full", action="store_true", help="batches of 1 M rows too")
    parser.add_argument("--quick", action="store_true", help="small: to see that it works")
    args = parser.parse_args()
    if args.full:
        args.rows = [*args.rows, 1_000_000]
    if args.quick:
        args.rows, args.keys, args.batches = [20_000], [1_000], 5
        args.warm_up = 3
        args.growth_rows, args.open = 20_000, 80_000
    for rows in args.rows:
        for keys in args.keys:
            report_speed(rows, keys, args)
    if args.open:
        report_growth(args.growth_rows, args)


if __name__ == "__main__":
    main()
