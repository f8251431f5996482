"""Small pipelines, one per feature that a runner may or may not support.

Each runs unchanged on every runner, and the panes must be equal. Probes that read files receive a
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import lowwater as lw
from lowwater.io import Log

SECOND = 1_000_000
TABLE = pa.table(
    {
        "at": pa.array([n * 7 * SECOND for n in range(40)]).cast(pa.timestamp("us", "UTC")),
        "key": pa.array([f"key {n % 3}" for n in range(40)]),
        "value": pa.array([n * n % 11 for n in range(40)]),
        "even": pa.array([n % 2 == 0 for n in range(40)]),
    }
)


@final
@dataclass(frozen=True)
class Probe:
    """One feature to test.

    Args:
        area: The section of the table.
        name: What users call it.
        pipeline: Makes the pipeline, given a folder to write to.
        options: Further options of ``to_spark``.
    """

    area: str
    name: str
    pipeline: Callable[[Path], Any]
    options: Mapping[str, Any] = field(default_factory=dict)


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


class Doubled:
    """A process: emits each value twice."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"value": record["value"]})
        ctx.emit({"value": record["value"]})


def begun(watermark: Any = None) -> lw.Stream:
    """Return the records, as a stream."""
    return lw.from_arrow(TABLE, time="at", watermark=watermark)


def counted(stream: Any, key: Any = "key") -> lw.Pipeline:
    """Group by key and minute."""
    return (
        stream.key_by(key)
        .window(lw.FixedWindows("1m"), accumulation="accumulating")
        .aggregate(n=lw.count(), total=lw.sum("value"))
    )


def in_windows(windows: Any, **options: Any) -> lw.Pipeline:
    """Add up in some windows."""
    return begun().key_by("key").window(windows, **options).aggregate(total=lw.sum("value"))


def by_trigger(trigger: lw.Trigger, accumulation: Any = "accumulating") -> lw.Pipeline:
    """Add up with a trigger, late elements allowed."""
    return in_windows(
        lw.FixedWindows("1m"), trigger=trigger, accumulation=accumulation, allowed_lateness="1m"
    )


def guessed(estimator: Any) -> Callable[[Path], Any]:
    """Count with the watermark of an estimator."""
    return lambda _: counted(begun(estimator))


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
        lw.Sessions("15s"),
        lw.Sessions("15s", merge_touching=True),
        lw.GlobalWindow(),
        lw.CalendarWindows(days=1, timezone="America/New_York"),
    ):
        made = in_windows(windows)
        yield Probe("Windows", repr(windows), _giving(made))
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
    yield Probe("Aggregates", "any", showing(lw.any("even")))
    yield Probe("Aggregates", "all", showing(lw.all("even")))
    yield Probe("Aggregates", "count_distinct", showing(lw.count_distinct("value")))
    spread = lw.combine(Spread(), "value")
    yield Probe("Aggregates", "combine(your own)", showing(spread), {"types": {"shown": "long"}})
    group = begun().key_by("key").window(lw.FixedWindows("1m"))
    yield Probe("Aggregates", 'group("value")', lambda _: group.group("value"))
    yield Probe("Aggregates", "group() of whole records", lambda _: group.group())

    kept = lw.col("value") > 3
    steps: dict[str, Callable[[], Any]] = {
        "filter(expression)": lambda: counted(begun().filter(kept)),
        "filter(function)": lambda: counted(begun().filter(lambda record: record["value"] > 3)),
        "with_columns": lambda: counted(begun().with_columns(value=lw.col("value") * 2)),
        "select": lambda: counted(begun().select("key", "value")),
        "map": lambda: counted(begun().map(lambda record: record)),
        "flat_map": lambda: counted(begun().flat_map(lambda record: [record, record])),
        "map_batches": lambda: counted(begun().map_batches(lambda batch: batch)),
        "deduplicate": lambda: counted(begun().deduplicate(id="value", within="1m")),
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
        yield Probe("Steps", name, _made_by(make))

    first = counted(begun())
    yield Probe("Graphs", "union", lambda _: counted(begun() | begun()))
    yield Probe("Graphs", "a second stage", lambda _: (
        first.key_by("key").window(lw.FixedWindows("2m")).aggregate(n=lw.sum("n"))
    ))  # fmt: skip
    yield Probe("Graphs", "process", lambda _: begun().key_by("key").process(Doubled()))

    for estimator in (
        lw.Ascending(),
        lw.BoundedDisorder("10s"),
        lw.Quantile(0.999, most="1m"),
        lw.Punctuated("at"),
        lw.External(),
        lw.PerPartition(lw.Ascending(), by="key"),
    ):
        yield Probe("Watermarks", repr(estimator), guessed(estimator))

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
