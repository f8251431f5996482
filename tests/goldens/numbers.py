"""Goldens of numbers that need all of their bits: long floats, ints beyond 2**53, infinities."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import BEYOND, FIRST, LATER, ROWS, START
from tests.goldens.windows import CLOCK, OFTEN, Range, Total, read, written

_LARGE = (1e16, -1e16, 1.0, 0.1, -0.0, 3e-300)
_SCHEMA = pa.schema(
    {
        "at": pa.timestamp("us", "UTC"),
        "arrived": pa.timestamp("us", "UTC"),
        "key": pa.string(),
        "odd": pa.float64(),
        "wide": pa.float64(),
        "far": pa.float64(),
        "big": pa.int64(),
        "small": pa.int16(),
        "single": pa.float32(),
        "fine": pa.timestamp("ns"),
        "lasts": pa.duration("us"),
        "dec": pa.decimal128(30, 10),
    }
)


def feed(later: bool) -> None:
    """Write the input, the first parts or those that come later."""
    Path("in").mkdir(exist_ok=True)
    for part in LATER if later else FIRST:
        rows = [_row(part * ROWS + n) for n in range(ROWS)]
        pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), f"in/{part}.parquet")


def _row(n: int) -> dict[str, Any]:
    return {
        "at": START + dt.timedelta(seconds=2 * n - n % 5),
        "arrived": START + dt.timedelta(seconds=2 * n + 1),
        "key": f"k{n % 2}",
        "odd": None if n % 8 == 3 else n / 7 - 3.3,
        "wide": _LARGE[n % len(_LARGE)] * (1 + n / 10),
        "far": float("inf") if n == 40 else float(n) ** 1.5,
        "big": (BEYOND + n) * (-1) ** (n % 3 == 0),
        "small": n % 7 - 3,
        "single": n / 3,
        "fine": 1_700_000_000_000_000_001 + n,
        "lasts": dt.timedelta(microseconds=n * 1_000_003),
        "dec": Decimal(f"{n}.{n + 1:010}"),
    }


SPECS: Mapping[str, AggregateSpec] = {
    **{
        f"{name}_{column}": function(column)
        for name, function in {"sum": lw.sum, "mean": lw.mean, "var": lw.var, "std": lw.std}.items()
        for column in ("odd", "wide", "far", "big", "small", "single")
    },
    **{
        f"{name}_{column}": function(column)
        for name, function in {"min": lw.min, "max": lw.max, "last": lw.last}.items()
        for column in ("odd", "wide", "big", "single", "fine", "lasts", "dec")
    },
    "distinct": lw.count_distinct("odd"),
    "set": lw.collect_set("wide"),
    "list": lw.collect("big"),
    "own": lw.combine(Range(), "odd"),
    "total": lw.combine(Total(), "big"),
}


def numbers() -> list[Writing]:
    """Aggregates in windows that share nothing, that merge, that share slices, and of panes."""
    keyed = read().key_by("key")
    fixed = (
        keyed.window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="accumulating")
        .aggregate(**SPECS)
        .named("fixed")
    )
    sliding = keyed.window(lw.SlidingWindows("90s", "30s")).aggregate(**SPECS).named("slices")
    sessions = (
        keyed.window(lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(odd=lw.sum("odd"), wide=lw.last("wide"), far=lw.max("odd"), big=lw.sum("small"))
        .named("sessions")
    )
    signed: Mapping[str, AggregateSpec] = {
        f"{name}_{column}": function(column)
        for name, function in {"sum": lw.sum, "mean": lw.mean, "var": lw.var, "std": lw.std}.items()
        for column in ("odd", "wide", "far", "big")
    }
    above = (
        sessions.key_by(every=lw.lit("all"))
        .window(lw.FixedWindows("2m"), trigger=OFTEN, accumulation="retracting")
        .aggregate(**signed, most=lw.max("wide"), one=lw.last("odd"))
        .named("above")
    )
    return written(fixed, sliding, sessions, above)


GOLDENS = [Golden(name="numbers", feed=feed, outputs=numbers, clock=CLOCK, killed=False)]
