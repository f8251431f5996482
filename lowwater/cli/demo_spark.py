"""The demo on Spark: the same flights, the same pipelines, as a stream of files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lowwater.cli.demo import departures, duty_sessions, load_flights
from lowwater.errors import UnsupportedByRunner, load_extra
from lowwater.io.terminal import table
from lowwater.pipeline import Pipeline

if TYPE_CHECKING:
    from lowwater.spark.session import SparkSession

# Longer than any disorder in the data, so results do not depend on where micro-batches end.
LATENESS = "1d"
_WEEKS_US = 4 * 7 * 86_400_000_000
_NOT_VALUES = frozenset(
    {
        "timing", "index", "on_time_index", "is_first", "is_last", "kind", "weight",
        "timestamp", "emitted_at", "watermark",
    }
)  # fmt: skip


def demo_spark(out: TextIO, spark: SparkSession | None = None) -> bool:
    """Run the demo's pipelines on Spark and embedded, and compare their final panes.

    Args:
        out: The stream to print to.
        spark: A session; by default a local one is started, and stopped at the end.

    Returns:
        Whether all final panes are equal.

    Raises:
        InvalidArgument: The flights are not installed.
        InvalidArgument: pyspark is missing.
        UnsupportedByRunner: Java is missing.
    """
    began = time.perf_counter()
    flights = load_flights()
    with tempfile.TemporaryDirectory(prefix="lowwater-demo-") as place:
        folder = Path(place)
        files = _write_files(flights, folder / "flights")
        _say(out, f"{len(flights):,} flights were scheduled to leave New York in 2013. Spark reads")
        _say(out, f"{files} files of four weeks each, in order of landing, one per micro-batch.")
        _say(out, "")
        with _session(spark, folder) as session:
            rows = [
                _compared(session, folder, "departures by hour", departures, LATENESS),
                _compared(session, folder, "duty sessions", duty_sessions),
            ]
    headings = [
        "", "micro-batches", "panes", "final panes", "embedded final panes", "", "seconds",
        "embedded seconds",
    ]  # fmt: skip
    _say(out, table(headings, rows, indent="  "))
    good = all(row[5] == "equal" for row in rows)
    _say(out, f"\nThe final panes are {'equal in every value' if good else 'DIFFERENT'}.")
    _say(out, f"Finished in {time.perf_counter() - began:.0f} seconds.")
    return good


def _compared(
    spark: SparkSession, folder: Path, name: str, pipeline: Any, *options: str
) -> tuple[Any, ...]:
    """Run a pipeline on both runners; return a table row with the comparison."""
    made: Pipeline = pipeline(folder / "flights", *options)
    began = time.perf_counter()
    shown, batches = _streamed(spark, made, folder / name.replace(" ", "-"))
    there = time.perf_counter()
    embedded = made.to_arrow(progress=False)
    here = time.perf_counter()
    keys = made._stage.key_names
    final, wanted = _final(shown, keys), _final(embedded, keys)
    return (
        name,
        batches,
        f"{len(shown):,}",
        f"{len(final):,}",
        f"{len(wanted):,}",
        "equal" if final.equals(wanted) else "DIFFERENT",
        f"{there - began:.0f}",
        f"{here - there:.0f}",
    )


def _streamed(spark: SparkSession, pipeline: Pipeline, place: Path) -> tuple[pa.Table, int]:
    """Run a pipeline as a stream into files; return all panes and the number of micro-batches."""
    panes = pipeline.to_spark(spark, files_per_batch=1, drain=True, types={})
    query = (
        panes.writeStream.format("parquet")
        .option("path", str(place / "panes"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shown: pa.Table = spark.read.parquet(str(place / "panes")).toArrow()
    return shown, query.lastProgress["batchId"] + 1


def _final(panes: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Return the last pane of each key and window, sorted, without timing and index columns."""
    window = [*keys, "window_start", "window_end"]
    last = panes.select([*window, "index"]).group_by(window).aggregate([("index", "max")])
    last = last.rename_columns([*window, "index"])
    names = [name for name in panes.column_names if name not in _NOT_VALUES]
    found = panes.select([*names, "index"]).append_column("row", pa.array(range(len(panes))))
    rows = last.join(found.select([*window, "index", "row"]), [*window, "index"])["row"]
    chosen = panes.select(names).take(rows).sort_by([(name, "ascending") for name in window])
    return chosen.cast(pa.schema([_plain(field) for field in chosen.schema])).combine_chunks()


def _plain(field: pa.Field) -> pa.Field:
    """Return a field with a type that both runners share."""
    kind = field.type
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", "UTC")
    elif pa.types.is_dictionary(kind) or pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(pa.field("element", pa.string()))
    return pa.field(field.name, kind)


def _write_files(flights: pa.Table, folder: Path) -> int:
    """Write the flights as a file for each four weeks of landings; return how many."""
    folder.mkdir()
    landed = flights["landed"].combine_chunks().cast(pa.int64())
    found = pc.value_counts(pc.divide(landed, _WEEKS_US)).to_pylist()  # in order, as flights are
    start = 0
    for number, part in enumerate(found):
        path = folder / f"part-{number:02}.parquet"
        pq.write_table(flights.slice(start, part["counts"]), path)
        os.utime(path, (number, number))  # Spark reads the oldest file first
        start += part["counts"]
    return len(found)


@contextmanager
def _session(given: SparkSession | None, folder: Path) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise UnsupportedByRunner("Spark needs Java", hint="Install Java 17 or 21: a JRE will do")
    load_extra("pyspark.sql", extra="spark", purpose="the demo on Spark")
    from lowwater.spark.session import local_session

    with local_session("lowwater demo", folder) as session:
        yield session


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
    out.flush()
