"""Small pipelines, one per feature that a runner may or may not support.

Each runs unchanged on every runner, and the panes must be equal. Probes that read files receive a
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import lowwater as lw
from docs.tools.counted_probes import counted_probes
from docs.tools.graph_probes import graph_probes, process_probes
from docs.tools.join_probes import join_probes
from docs.tools.match_probes import match_probes
from docs.tools.over_probes import over_probes
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, SECOND, TABLE, begun, counted, in_files
from docs.tools.table_probes import table_probes
from lowwater.io import Log


class Spread:
    """A combiner: the largest value minus the smallest."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        held = [*accumulator, value]
        return [min(held), max(held)]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        held = [value for one in accumulators for value in one]
        return [min(held), max(held)] if held else []

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[-1] - accumulator[0] if accumulator else 0


class AfterThree:
    """Logic of a trigger: ready after three elements."""

    def on_element(self, context: Any, time: int) -> None:
        context.state = (context.state or 0) + 1

    def ready(self, context: Any) -> bool:
        return (context.state or 0) >= 3

    def on_fire(self, context: Any) -> bool:
        context.state = 0
        return False

    def on_merge(self, context: Any, states: Any) -> None:
        context.state = sum(state or 0 for state in states)


RECORDS = "array<struct<at: timestamp, key: string, value: bigint, even: boolean, file: bigint>>"
COUNTED = {"key": "string", "n": "bigint", "total": "bigint"}
STEP_TYPES: Mapping[str, Mapping[str, str]] = {
    "map": COUNTED,
    "map_async": COUNTED,
    "flat_map": COUNTED,
    "map_batches": COUNTED,
    "key_by(function)": {"key": "bigint"},
}
"""The types of columns that Python functions make: Spark must know them in advance."""


async def _same_from_outside(record: Any) -> Any:
    return record


def _same(record: Any) -> Any:
    return record


def _every_other(record: Any) -> Any:
    return record["at"] if record["even"] else None


FIRST = (0, 140 * SECOND, 7 * SECOND)
"""The earliest event time of each file."""
ESTIMATORS: Mapping[str, Any] = {
    "Ascending()": lw.Ascending(),
    "BoundedDisorder('10s')": lw.BoundedDisorder("10s"),
    "Quantile(0.999, most='1m')": lw.Quantile(0.999, most="1m"),
    "Punctuated('at')": lw.Punctuated("at"),
    "Punctuated(function)": lw.Punctuated(_every_other),
    "PerPartition(Ascending(), by='key')": lw.PerPartition(lw.Ascending(), by="key"),
    "PerPartition(Quantile(0.9), by='key')": lw.PerPartition(lw.Quantile(0.9), by="key"),
    "FinishedFiles({...}, by='file')": lw.FinishedFiles(dict(enumerate(FIRST)), by="file"),
    "External()": lw.External(),
    "ManualWatermark()": lw.ManualWatermark(),
}


def in_windows(windows: Any, **options: Any) -> lw.Pipeline:
    """Add up in some windows."""
    return begun().key_by("key").window(windows, **options).aggregate(total=lw.sum("value"))


def by_trigger(trigger: lw.Trigger, accumulation: Any = "accumulating") -> lw.Pipeline:
    """Add up with a trigger, late elements allowed."""
    return in_windows(
        lw.FixedWindows("1m"), trigger=trigger, accumulation=accumulation, allowed_lateness="1m"
    )


def guessed(estimator: Any) -> Callable[[Path], Any]:
    """Count with the watermark of an estimator, in micro-batches."""
    return lambda folder: counted(in_files(folder, estimator))


def showing(aggregate: lw.AggregateSpec) -> Callable[[Path], Any]:
    """Emit an aggregate."""
    windowed = begun().key_by("key").window(lw.FixedWindows("1m"))
    return lambda _: windowed.aggregate(shown=aggregate)


def probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    early_and_late = lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1))
    for windows in (
        lw.FixedWindows("1m"),
        lw.SlidingWindows("1m", "30s"),
        lw.CumulativeWindows("1m", "20s"),
        lw.Sessions("15s"),
        lw.Sessions("15s", merge_touching=True),
        lw.GlobalWindow(),
        lw.CalendarWindows(days=1, timezone="America/New_York"),
    ):
        made = in_windows(windows)
        yield Probe("Windows", repr(windows), _giving(made))
    bounded = begun().with_columns(
        opened=lw.col("at").dt.truncate("30s"), closes=lw.col("at").dt.offset_by("20s")
    )
    of_columns = lw.ColumnWindows("opened", "closes", longest="1m")
    of_own = bounded.key_by("key").window(of_columns).aggregate(total=lw.sum("value"))
    yield Probe("Windows", "ColumnWindows(...)", lambda _: of_own)
    custom = lw.CustomWindows(lambda t: [(t - t % SECOND, t - t % SECOND + SECOND)])
    yield Probe("Windows", "CustomWindows(...)", lambda _: in_windows(custom))

    for trigger in (
        lw.AfterWatermark(),
        early_and_late,
        lw.Repeatedly(lw.AfterCount(3)),
        lw.AfterWatermark(early=lw.AfterProcessingTime("1m")),
        lw.OrFinally(lw.Repeatedly(lw.AfterCount(3)), lw.AfterWatermark()),
        lw.Always(),
    ):
        options = {}
        if trigger == early_and_late:
            options = {"allowed_lateness": "1m"}
        elif isinstance(trigger, (lw.OrFinally, lw.AfterWatermark)):
            options = {"allow_data_loss": "nothing is late here"}
        made = in_windows(
            lw.FixedWindows("1m"), trigger=trigger, accumulation="accumulating", **options
        )
        yield Probe("Triggers", repr(trigger), _giving(made))
    own = lw.CustomTrigger(AfterThree(), finishes="never")
    yield Probe("Triggers", "CustomTrigger(...)", lambda _: by_trigger(own))

    for mode in ("discarding", "accumulating", "retracting"):
        made = by_trigger(early_and_late, mode)
        yield Probe("Accumulation", repr(mode), _giving(made))

    for spec in (
        lw.count("value"), lw.sum("value"), lw.mean("value"), lw.min("value"), lw.max("value"),
        lw.var("value"), lw.std("value"), lw.first("value"), lw.last("value"), lw.collect("value"),
        lw.collect_set("value"),
    ):  # fmt: skip
        yield Probe("Aggregates", spec.name, showing(spec))
    yield Probe("Aggregates", "first(by=...)", showing(lw.first("at", by="value")))
    yield Probe("Aggregates", "last(by=...)", showing(lw.last("at", by="value")))
    for spec in (
        lw.min_by("even", "value"), lw.max_by("even", "value"), lw.any("even"), lw.all("even"),
        lw.count_distinct("value"),
        lw.top(2, by="value", keep="at"), lw.most_frequent("value"), lw.quantile("value", 0.9),
        lw.median("value"), lw.approx_quantile("value", 0.9), lw.approx_count_distinct("value"),
    ):  # fmt: skip
        yield Probe("Aggregates", spec.name, showing(spec))
    conditional = lw.sum("value", where=lw.col("value") > 3)
    yield Probe("Aggregates", "sum(where=...)", showing(conditional))
    spread = lw.combine(Spread(), "value")
    yield Probe("Aggregates", "combine(your own)", showing(spread), {"types": {"shown": "long"}})
    group = begun().key_by("key").window(lw.FixedWindows("1m"))
    yield Probe("Aggregates", 'group("value")', lambda _: group.group("value"))
    yield Probe("Aggregates", "group() of whole records", lambda _: group.group(), {
        "types": {"records": RECORDS}
    })  # fmt: skip

    kept = lw.col("value") > 3
    steps: dict[str, Callable[[], Any]] = {
        "filter(expression)": lambda: counted(begun().filter(kept)),
        "filter(function)": lambda: counted(begun().filter(lambda record: record["value"] > 3)),
        "with_columns": lambda: counted(begun().with_columns(value=lw.col("value") * 2)),
        "select": lambda: counted(begun().select("key", "value")),
        "map": lambda: counted(begun().map(_same)),
        "map_async": lambda: counted(begun().map_async(_same_from_outside)),
        "flat_map": lambda: counted(begun().flat_map(lambda record: [record, record])),
        "lookup(table, on=)": lambda: counted(
            begun().lookup(pa.table({"key": ["key 1", "even"], "name": ["x", "y"]}), on="key")
        ),
        "explode": lambda: counted(
            begun().with_columns(parts=lw.col("key").str.split("e")).explode("parts")
        ),
        "map_batches": lambda: counted(begun().map_batches(lambda batch: batch)),
        "deduplicate": lambda: counted(begun().deduplicate(id="value", within="1m")),
        "deduplicate(id with the key in it)": lambda: counted(
            begun().deduplicate(id=("key", "value"), within="1m")
        ),
        "key_by(column)": lambda: counted(begun()),
        "key_by(name=expression)": lambda: (
            begun()
            .key_by(half=lw.col("value") < 5)
            .window(lw.FixedWindows("1m"))
            .aggregate(n=lw.count())
        ),
        "key_by(function)": lambda: counted(begun(), lambda record: record["value"] % 2),
    }
    for name, make in steps.items():
        yield Probe("Steps", name, _made_by(make), {"types": STEP_TYPES.get(name, {})})

    for of_stages in (
        graph_probes,
        process_probes,
        join_probes,
        match_probes,
        over_probes,
        counted_probes,
        table_probes,
    ):
        yield from of_stages()

    for name, estimator in ESTIMATORS.items():
        yield Probe("Watermarks", name, guessed(estimator), ONE_FILE)
    yield Probe("Watermarks", "FinishedFiles({...})", _by_file, ONE_FILE)
    yield Probe("Watermarks", "idle_after", _idle, ONE_FILE)
    yield from _clocks()
    yield Probe("Options", "memory_limit", lambda folder: counted(in_files(folder)), lambda f: {
        **ONE_FILE, "state": "rocksdb", "state_location": f / "state", "memory_limit": "16MiB"
    })  # fmt: skip
    yield Probe("Options", "types=", lambda _: counted(begun().map(_same)), {
        "types": STEP_TYPES["map"]
    })  # fmt: skip

    yield Probe("Sources", "from_iterable", lambda _: counted(
        lw.from_iterable(TABLE.to_pylist(), time="at")
    ))  # fmt: skip
    yield Probe("Sources", "from_arrow", lambda _: counted(begun()))
    yield Probe("Sources", "from_frame", lambda _: counted(
        lw.from_frame(polars.DataFrame(TABLE).lazy(), time="at")
    ))  # fmt: skip
    yield Probe("Sources", "read_parquet", _parquet)
    yield Probe("Sources", "read_csv", _csv)
    yield Probe("Sources", "read_log", _log)


def _giving(pipeline: lw.Pipeline) -> Callable[[Path], Any]:
    return lambda _: pipeline


def _made_by(make: Callable[[], Any]) -> Callable[[Path], Any]:
    return lambda _: make()


def _parquet(folder: Path) -> lw.Pipeline:
    pyarrow.parquet.write_table(TABLE, folder / "part.parquet")
    return counted(lw.read_parquet(str(folder), time="at"))


def _csv(folder: Path) -> lw.Pipeline:
    pyarrow.csv.write_csv(TABLE.select(["at", "key", "value"]), folder / "part.csv")
    return counted(lw.read_csv(str(folder), time="at"))


def _log(folder: Path) -> lw.Pipeline:
    with Log(folder / "log", partitions=2) as log:
        log.append(TABLE)
    return counted(lw.read_log(folder / "log", time="at"))


def _by_file(folder: Path) -> lw.Pipeline:
    minima = {str(folder / f"{at}.parquet"): first for at, first in enumerate(FIRST)}
    return counted(in_files(folder, lw.FinishedFiles(minima)))


def _idle(folder: Path) -> lw.Pipeline:
    """A source that stops holds the watermark no longer."""
    clock = lw.ArrivalClock("at")
    one = in_files(folder / "one", clock=clock)
    other = in_files(folder / "other", rows=slice(1), clock=clock, idle_after="10s")
    return counted(one | other)


def _clocks() -> Iterator[Probe]:
    yield Probe("Clocks", "ArrivalClock(...)", _arriving, ONE_FILE)
    yield Probe("Clocks", "time=arrival()", _by_arrival)
    yield Probe("Clocks", "WallClock()", lambda _: counted(begun(clock=lw.WallClock())))
    yield Probe("Clocks", "ManualClock()", lambda _: counted(begun(clock=lw.ManualClock())))


def _by_arrival(_: Path) -> lw.Pipeline:
    clock = lw.ArrivalClock("at", tick="1s")
    return counted(lw.from_arrow(TABLE, time=lw.arrival(), clock=clock))


def _arriving(folder: Path) -> lw.Pipeline:
    return counted(in_files(folder, clock=lw.ArrivalClock("at")))
