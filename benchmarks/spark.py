"""``python -m benchmarks.spark``: this library on Spark, beside Spark's own and beside itself.

Each query runs in a driver of its own over the same files, a file per micro-batch, into Spark's
``noop`` sink, on ``local[2]`` with the settings that :func:`lowwater.spark.recommended`
gives, whichever query it is. Queries run in turn, ``--rounds`` times; figures are medians of the
rounds, and a ratio is taken round by round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import spark_beside, spark_cores
from benchmarks.machine import load, machine
from benchmarks.spark_beside import Beside, Sizes
from benchmarks.spark_cores import Cores
from benchmarks.spark_runs import Plan, measured
from benchmarks.spark_state import Touching

DATA = Path(__file__).parent / ".data"
_STATES: list[dict[str, Any]] = [{"state": "inline"}, {"state": "rocksdb"}, {"state": "auto"}]
_CORES = [case.pipeline for case in spark_cores.CASES]


def main(given: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    args = _parser().parse_args(given)
    if args.quick:
        _make_small(args)
    packages = ("lowwater", "pyspark", "pandas", "pyarrow", "numpy")
    print(f"{machine(*packages)}, {_java()}; load {load():.1f}; medians of {args.rounds} rounds")
    for table in args.only:
        _TABLES[table](args)


def _speed(args: argparse.Namespace) -> None:
    beside = _beside(args)
    beside.heading()
    for case in _cases(args):
        beside.speed(case)


def _joins(args: argparse.Namespace) -> None:
    beside = _beside(args, [{}, {"operator": "mapInArrow"}])
    beside.heading()
    cases: Sequence[Sizes] = spark_beside.JOINS
    if args.windows or args.rows or args.keys:
        chosen = itertools.product(
            args.windows or ("inner join", "left join"),
            args.rows or [20_000],
            args.keys or [10_000],
        )
        cases = [Sizes(*each) for each in chosen]
    for case in cases:
        beside.speed(case)


def _growth(args: argparse.Namespace) -> None:
    beside = _beside(args, _STATES)
    beside.heading()
    beside.growth(args.opened, max(args.open or [2_000_000]))


def _touch(args: argparse.Namespace) -> None:
    sizes = args.open or [250_000, 1_000_000, 4_000_000]
    _touching(args).growth((args.touched or [5_000])[0], sizes)


def _workers(args: argparse.Namespace) -> None:
    _touching(args).workers(max(args.open or [2_000_000]), args.touched or [5_000, 250_000])


def _memory(args: argparse.Namespace) -> None:
    size, touched = max(args.open or [4_000_000]), (args.touched or [5_000])[0]
    _touching(args).memory(size, touched, args.limit)


def _cores(args: argparse.Namespace) -> None:
    cores = Cores(_plan(args))
    cores.heading()
    cases = [case for case in spark_cores.CASES if case.pipeline in (args.pipelines or _CORES)]
    for case, rows in itertools.product(cases, args.rows or [250_000, 1_000_000]):
        cores.report(case, rows)


def _alternatives(args: argparse.Namespace) -> None:
    for case in _cases(args)[:1] if args.rows else [Sizes("fixed", 250_000, 10_000)]:
        spark_beside.report_alternatives(case, _beside(args))


_TABLES: dict[str, Callable[[argparse.Namespace], None]] = {
    "speed": _speed,
    "joins": _joins,
    "growth": _growth,
    "touch": _touch,
    "workers": _workers,
    "cores": _cores,
    "memory": _memory,
    "alternatives": _alternatives,
}


def _cases(args: argparse.Namespace) -> Sequence[Sizes]:
    if not (args.windows or args.rows or args.keys):
        return spark_beside.CASES
    chosen = itertools.product(
        args.windows or ["fixed"], args.rows or [250_000], args.keys or [10_000]
    )
    return [Sizes(*each) for each in chosen]


def _beside(args: argparse.Namespace, ways: Sequence[dict[str, Any]] = ({},)) -> Beside:
    return Beside(_plan(args, ways))


def _touching(args: argparse.Namespace) -> Touching:
    few = max(1, args.warm_up // 4)  # they warm up over another folder before
    return Touching(replace(_plan(args, _STATES), warm_up=few), args.opened)


def _plan(args: argparse.Namespace, ways: Sequence[dict[str, Any]] = ({},)) -> Plan:
    return Plan(
        args.ways or ways,
        args.rounds,
        args.batches,
        args.warm_up,
        args.most_seconds,
        DATA,
        measured,
    )


def _make_small(args: argparse.Namespace) -> None:
    args.rounds, args.batches, args.warm_up, args.opened = 1, 8, 4, 10_000
    args.rows, args.keys = args.rows or [20_000], args.keys or [1_000]
    args.open, args.touched = args.open or [10_000, 40_000], args.touched or [500]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return "no Java"
    found = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    return found.stderr.splitlines()[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    numbers = partial(parser.add_argument, type=int, nargs="+")
    tables = [name for name in _TABLES if name != "alternatives"]
    parser.add_argument("--only", nargs="+", choices=_TABLES, default=tables, help="tables")
    parser.add_argument("--rounds", type=int, default=3, help="how often each query runs")
    parser.add_argument(
        "--ways",
        type=json.loads,
        nargs="+",
        help="what this library runs with, each a JSON object: options of to_spark, and settings "
        "of Spark, whose names begin with spark.",
    )
    parser.add_argument(
        "--windows", nargs="+", choices=["fixed", "sessions", "inner join", "left join"]
    )
    parser.add_argument("--pipelines", nargs="+", choices=_CORES, help="for cores")
    numbers("--rows", help="of a batch, for speed and cores")
    numbers("--keys", help="for speed")
    numbers("--open", help="windows, for growth, touch, workers, memory")
    parser.add_argument("--opened", type=int, default=250_000, help="windows a batch, until then")
    numbers("--touched", help="windows a batch, for touch, workers, memory")
    parser.add_argument("--limit", default="256MB", help="memory_limit, for memory")
    parser.add_argument("--batches", type=int, default=40, help="most of them, behind the opening")
    parser.add_argument("--warm-up", type=int, default=20, help="batches that do not count")
    parser.add_argument("--most-seconds", type=float, default=120, help="per query, about")
    parser.add_argument("--quick", action="store_true", help="small: to see that it works")
    return parser


if __name__ == "__main__":
    main()
