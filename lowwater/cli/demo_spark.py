"""The demo on Spark: a graph of three stages over the flights, in one streaming query."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.cli.demo import DISORDER, DUTY_GAP, load_flights
from lowwater.errors import UnsupportedByRunner, load_extra
from lowwater.io.terminal import cell, moment, table
from lowwater.pipeline import Pipeline
from lowwater.time import END_OF_TIME, format_duration

if TYPE_CHECKING:
    from lowwater.spark.session import SparkSession

# Longer than any disorder in the data, so results do not depend on where micro-batches end.
LATENESS = "1d"
# What a Python step makes has no type that Spark could know.
TYPES = {"city": "string", "airport": "string", "most": "long"}
_WEEK_US = 7 * 86_400_000_000
_WEEKS = 13
_HEADINGS = (
    "micro-batch", "flights", "panes", "retractions", "open windows", "watermark", "seconds",
)  # fmt: skip
_WIDTHS = (11, 7, 6, 11, 12, 19, 7)
_HISTORY = 12  # lines of the table of one hour, at most

Outputs = Mapping[str, Pipeline]


@final
class Leader:
    """Finds the busiest airport: a combiner over ``[departures, airport]``.

    Of airports with equally many departures it is the first one by name.
    """

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: list[Any]) -> list[Any]:
        return self.merge_accumulators([accumulator, value])

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return min((one for one in accumulators if one), key=lambda one: (-one[0], one[1]))

    def extract_output(self, accumulator: list[Any]) -> str:
        return str(accumulator[1])


def demo_spark(out: TextIO, spark: SparkSession | None = None) -> bool:
    """Run a graph on Spark and embedded, and compare what stands of its panes.

    Args:
        out: The stream to print to.
        spark: A session; by default a local one is started, and stopped at the end.

    Returns:
        Whether all of it is equal.

    Raises:
        InvalidArgument: The flights are not installed.
        InvalidArgument: pyspark is missing.
        UnsupportedByRunner: Java is missing.
    """
    began = time.perf_counter()
    flights = departed(load_flights())
    with tempfile.TemporaryDirectory(prefix="lowwater-demo-") as place:
        folder = Path(place)
        files = _write_files(flights, folder / "flights")
        outputs = graph(folder / "flights")
        _say(out, f"{len(flights):,} flights left New York in the first quarter of 2013. The event")
        _say(out, "time of a flight is its departure. Its record arrives when it lands, so the")
        _say(out, f"records are hours out of order: {files} files, a week of landings in each.")
        _say(out, "")
        _say(out, "One query computes three stages. The second one reads the panes of the first,")
        _say(out, "and their retractions:")
        _say(out, "")
        _say(out, "  flights -+-> departures per airport and hour ---> busiest airport per hour")
        _say(out, "           +-> duty sessions per aircraft")
        _say(out, "")
        _head(out, 1, "The query, a micro-batch per line")
        with _session(spark, folder) as session:
            there, seconds = streamed(session, outputs, folder, out)
        here = embedded(outputs, folder / "embedded")
    _show_busiest(out, there["busiest"])
    _show_duty(out, there["duty"])
    _head(out, 4, "Compared with the embedded engine")
    good = compare(out, there, here)
    _say(out, f"\nThe query took {seconds:.0f} s, all of it {time.perf_counter() - began:.0f} s.")
    return good


def graph(files: Path) -> Outputs:
    """Return the outputs of the graph, by the name of their stages.

    Args:
        files: The folder with the flights.
    """
    flights = lw.read_parquet(files, time="departed", watermark=lw.BoundedDisorder(DISORDER))
    each_time = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
    departures = (
        flights.key_by("origin")
        .window(
            lw.FixedWindows("1h"),
            trigger=each_time,
            accumulation="retracting",
            allowed_lateness=LATENESS,
        )
        .aggregate(departures=lw.count())
        .named("departures")
    )
    busiest = (
        departures.map(lambda pane: {**pane, "place": [pane["departures"], pane["origin"]]})
        .key_by(city=lw.lit("New York"))
        .window(lw.FixedWindows("1h"), trigger=each_time, accumulation="retracting")
        .aggregate(airport=lw.combine(Leader(), "place"), most=lw.max("departures"))
        .named("busiest")
    )
    duty = (
        flights.key_by("tailnum")
        .window(
            lw.Sessions(DUTY_GAP),
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness=LATENESS,
        )
        .aggregate(flights=lw.count(), to=lw.last("dest"))
        .named("duty")
    )
    return {"departures": departures, "busiest": busiest, "duty": duty}


def departed(flights: pa.Table) -> pa.Table:
    """Return the flights that departed and landed in the first weeks of the data."""
    landed = flights["landed"].cast(pa.int64())
    end = pc.add(pc.min(landed), _WEEKS * _WEEK_US)
    return flights.filter(pc.and_(pc.less(landed, end), flights["departed"].is_valid()))


def streamed(
    spark: SparkSession, outputs: Outputs, place: Path, out: TextIO
) -> tuple[dict[str, pa.Table], float]:
    """Run the graph as one query, with a line per micro-batch.

    Returns:
        The panes of each output, and the seconds that the query took.
    """
    began = time.perf_counter()
    lines = ProgressLines(out)
    panes = lw.to_spark(
        spark, *outputs.values(), files_per_batch=1, drain=True, key_groups=4, types=TYPES
    )
    query = (
        panes.writeStream.format("parquet")
        .partitionBy("output")
        .option("path", str(place / "panes"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    while not query.awaitTermination(1):
        lines.write(query.recentProgress)
    lines.write(query.recentProgress)
    _say(out, "")
    found = {}
    for name in outputs:
        parts = sorted((place / "panes" / f"output={name}").glob("*.parquet"))
        found[name] = pa.concat_tables([pq.read_table(part) for part in parts])
    return found, time.perf_counter() - began


@final
class ProgressLines:
    """Writes headings, and a line for each micro-batch of a query.

    Args:
        out: The stream to write to.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._next = 0
        self._line(_HEADINGS)

    def write(self, progress: Iterable[Mapping[str, Any]]) -> None:
        """Write lines for the micro-batches that have none yet.

        Args:
            progress: Spark's reports, as in ``query.recentProgress``.
        """
        from lowwater.spark.query_progress import of_reports

        for one in progress:
            if one["batchId"] < self._next or "lowwater" not in one["observedMetrics"]:
                continue
            self._next = one["batchId"] + 1
            metrics = of_reports([one])
            self._line(
                (
                    one["batchId"],
                    metrics.events,
                    metrics.panes.total(),
                    metrics.retractions,
                    metrics.open_windows,
                    "at the end" if metrics.watermark == END_OF_TIME else metrics.watermark,
                    metrics.elapsed,
                )
            )

    def _line(self, values: Iterable[Any]) -> None:
        cells = [cell(value).rjust(width) for value, width in zip(values, _WIDTHS, strict=True)]
        _say(self._out, "  " + "  ".join(cells))


def embedded(outputs: Outputs, place: Path) -> dict[str, pa.Table]:
    """Run the graph in this process; return the panes of each output."""
    lw.run(*(made.write_parquet(place / name) for name, made in outputs.items()), progress=False)
    found = {}
    for name in outputs:
        parts = sorted((place / name).glob("part-*.parquet"))
        tables = [pq.read_table(part) for part in parts]
        found[name] = pa.concat_tables(tables, promote_options="permissive")
    return found


def compare(out: TextIO, there: Mapping[str, pa.Table], here: Mapping[str, pa.Table]) -> bool:
    """Print what stands of the panes of both runs; return whether it is equal."""
    rows = []
    for name, panes in there.items():
        found, wanted = standing(panes), standing(here[name])
        equal = found.equals(wanted.select(found.column_names).cast(found.schema))
        inserts = pc.sum(pc.equal(panes["kind"], "insert")).as_py()
        rows.append(
            (
                name,
                inserts,
                len(panes) - inserts,
                len(found),
                len(wanted),
                "equal in every value" if equal else "DIFFERENT",
            )
        )
    headings = ["", "panes on Spark", "retractions", "standing", "standing, embedded", ""]
    _say(out, table(headings, rows, indent="  "))
    return all(row[-1] != "DIFFERENT" for row in rows)


def standing(panes: pa.Table) -> pa.Table:
    """Return what stands of retracting panes, sorted: windows and values, without the rest.

    Each retraction cancels an equal pane; a window whose panes do not leave one row has more.
    """
    names = [
        name
        for name in _VALUES
        if name in panes.column_names and panes[name].null_count < len(panes)
    ]
    used = [*names, "window_start", "window_end"]
    rows = panes.select(used).cast(
        pa.schema([pa.field(name, _plain(panes.schema.field(name).type)) for name in used])
    )
    sign = pc.if_else(pc.equal(panes["kind"].cast(pa.string()), "insert"), 1, -1)
    net = rows.append_column("net", sign).group_by(used).aggregate([("net", "sum")])
    net = net.filter(pc.not_equal(net["net_sum"], 0))
    return net.sort_by([(name, "ascending") for name in used]).combine_chunks()


_VALUES = ("origin", "city", "tailnum", "departures", "airport", "most", "flights", "to")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type that both runners share."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_dictionary(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return kind


def _show_busiest(out: TextIO, panes: pa.Table) -> None:
    """Print the panes of the hour for which the answer changed most often."""
    panes = panes.sort_by([("emitted_at", "ascending"), ("index", "ascending")])
    changes: dict[int, int] = {}
    named: dict[int, str] = {}
    for row in panes.filter(pc.equal(panes["kind"], "insert")).to_pylist():
        start = row["window_start"]
        changes[start] = changes.get(start, 0) + (named.get(start) != row["airport"])
        named[start] = row["airport"]
    start = max(changes, key=lambda at: (changes[at], at))
    rows = panes.filter(
        pc.equal(panes["window_start"], pa.scalar(start, panes["window_start"].type))
    )
    at = rows["window_start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py()
    _head(out, 2, f"The busiest airport, {moment(at)} to an hour later, UTC: what the query said")
    lines = [
        (row["kind"], row["timing"], row["index"], row["airport"], row["most"])
        for row in rows.to_pylist()[:_HISTORY]
    ]
    _say(out, table(["kind", "timing", "pane", "airport", "departures"], lines, indent="  "))
    _say(
        out, "\n  EARLY panes do not wait for the watermark. When flights of that hour land in the"
    )
    _say(out, "  next week, what was said of it before is retracted, in both stages.\n")


def _show_duty(out: TextIO, panes: pa.Table) -> None:
    """Print the longest sessions."""
    gap = lw.duration(DUTY_GAP)
    _head(out, 3, f"Longest duty sessions of an aircraft (departures less than {DUTY_GAP} apart)")
    found = standing(panes)
    bounds = (found[name].cast(pa.int64()) for name in ("window_end", "window_start"))
    length = pc.subtract(*bounds)
    longest = found.append_column("length", length).sort_by(
        [("length", "descending"), ("tailnum", "ascending")]
    )
    lines = [
        (
            row["tailnum"],
            f"{row['window_start']:%Y-%m-%d %H:%M}",
            format_duration(row["length"] - gap),
            row["flights"],
            row["to"],
        )
        for row in longest.slice(0, 5).to_pylist()
    ]
    headings = ["aircraft", "first departure", "duty", "flights", "last to"]
    _say(out, table(headings, lines, indent="  "))
    _say(out, "")


def _write_files(flights: pa.Table, folder: Path) -> int:
    """Write the flights as a file for each week of landings; return how many."""
    folder.mkdir()
    landed = flights["landed"].combine_chunks().cast(pa.int64())
    weeks = pc.divide(pc.subtract(landed, landed[0]), _WEEK_US)
    found = pc.value_counts(weeks).to_pylist()  # in order, as flights are
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

    with local_session("lowwater demo", folder, chains=True) as session:
        yield session


def _head(out: TextIO, number: int, title: str) -> None:
    _say(out, f"{number}. {title}\n")


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
    out.flush()
