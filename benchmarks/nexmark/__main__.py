"""Run the queries of Nexmark, compare all rows with Polars, and print a table."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable, Sequence

import lowwater as lw
from benchmarks.machine import load, machine
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.measuring import Measured, measure
from benchmarks.nexmark.queries import QUERIES


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if an answer is wrong."""
    args = _arguments(given)
    # The winning bid is the highest one, so most bids are superseded: no mistake here.
    warnings.filterwarnings("ignore", message=".*were superseded", category=lw.DataWarning)
    events = Events(
        args.events,
        seed=args.seed,
        per_second=args.rate,
        out_of_order="1s" if args.late and args.out_of_order == "0s" else args.out_of_order,
        late=0.01 if args.late else 0.0,
    )
    names = args.queries or list(QUERIES)
    print(machine("pyarrow", "polars") + f", load {load():.1f}")
    print(
        f"{events.count:,} events, {events.per_second:,} in each second, up to "
        f"{events.out_of_order} out of order"
        + (f", {events.late:.0%} late by up to {events.later}" if events.late else "")
        + ("" if args.spark else f"; bundles of {args.bundle:,}")
    )
    if args.spark:
        from benchmarks.nexmark.on_spark import measure_on_spark

        return _print(measure_on_spark(events, names))
    return _print(measure(events, names, args.bundle))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__)
    parser.add_argument(
        "queries", nargs="*", metavar="query", help="q0 to q22, by default all",
        choices=[*QUERIES, []], default=[],
    )  # fmt: skip
    parser.add_argument("--events", type=int, default=1_000_000, help="how many, by default 1 M")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument(
        "--rate", type=int, default=10_000, help="events in each second of event time"
    )
    parser.add_argument(
        "--out-of-order", default="0s", metavar="DURATION", help="how late events may arrive"
    )
    parser.add_argument(
        "--late", action="store_true", help="one event in 100 comes up to 5 s behind the watermark"
    )
    parser.add_argument("--bundle", type=int, default=50_000, help="events in a bundle")
    parser.add_argument("--spark", action="store_true", help="run them on Spark, as batch queries")
    return parser.parse_args(given)


def _print(found: Iterable[Measured]) -> int:
    print("| query | answer | rows | lines | events/s | CPU s per M events |")
    print("|---|---|---|---|---|---|")
    wrong, refused = [], []
    for one in found:
        if one.compared.refused:
            refused.append(one)
            continue
        cpu = "" if one.cpu is None else f"{one.cpu / one.events * 1e6:.2f}"
        print(
            f"| {one.query} | {'wrong' if one.compared.problem else 'right'} "
            f"| {one.compared.rows:,} | {one.lines} | {one.events / one.seconds:,.0f} | {cpu} |",
            flush=True,
        )
        wrong += [one] if one.compared.problem else []
    for one in refused:
        print(f"{one.query} does not run there: {one.compared.refused}")
    for one in wrong:
        print(f"{one.query} is wrong: {one.compared.problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
